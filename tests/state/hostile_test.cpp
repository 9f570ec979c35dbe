// States that somebody made to do harm, under checksums that are right.

#include <gtest/gtest.h>
#include <zstd.h>

#include <chrono>

#include "state/allocations.h"
#include "state/inspection.h"
#include "state/state_rig.h"
#include "testing/chunk_sealer.h"

namespace cellar::testing {
namespace {

// A state that ends behind its head, or behind one chunk of rows.
class Forged : public ChunkSealer {
public:
    explicit Forged(const StateHead& head) { put_chunk({ChunkHeader::kHead}, encode_head(head)); }
};

StateHead head_of(StateRig& rig) {
    const std::vector<std::byte> bytes = save(rig);
    MemorySource source(bytes);
    return inspect_state(source)->head;
}

Result<StateInspection> inspect(std::span<const std::byte> bytes) {
    MemorySource source(bytes);
    return inspect_state(source);
}

void expect_bad(const Forged& state, const char* says) {
    StateRig rig;
    rig.append(0, 7);
    const uint64_t before = rig.hash(0);
    const auto loaded = load(rig, state.bytes());
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::kBadFile);
    EXPECT_NE(loaded.error().message.find(says), std::string::npos) << loaded.error().message;
    EXPECT_EQ(rig.hash(0), before);
    const auto found = inspect(state.bytes());
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, Code::kBadFile);
}

// A few bytes can claim a row of gigabytes, and zstd makes next to nothing of as many zeros.
TEST(HostileStateTest, RowsThatUnpackToGigabytes) {
    StateRig rig;
    rig.append(0, 3);
    StateHead head = head_of(rig);
    head.layers[0].values[0] = uint64_t{1} << 29;
    Forged state(head);
    const std::vector<std::byte> zeros(1000);
    std::vector<std::byte> packed(ZSTD_compressBound(zeros.size()));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), zeros.data(), zeros.size(), 1));
    state.put_chunk({ChunkHeader::kRows, ChunkHeader::kZstd, 0, 0, 0, 1}, packed);
    forget_allocations();
    const auto found = inspect(state.bytes());
    EXPECT_LE(greatest_allocation(), 2 * state.bytes().size() + (size_t{1} << 20));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_FALSE(found->verified);
}

// Big rows are written as they are: what is packed stays small beside a chunk.
TEST(HostileStateTest, RowsTooBigToPackComeBackAllTheSame) {
    RigOptions options;
    options.kind = {"big", {GroupKind::recurrent()}, {{0, 1, 8, 1u << 19}}};
    StateRig rig(options);
    rig.append(0, 2);
    const std::vector<uint8_t> zeros(rig->v(0)->nb[1] * 8, 0);
    ggml_backend_tensor_set(rig->v(0), zeros.data(), 0, zeros.size());
    SaveOptions compress;
    compress.compress = true;
    const std::vector<std::byte> bytes = save(rig, {0}, compress);
    const auto found = inspect(bytes);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(found->verified);
    StateRig to(options);
    ASSERT_TRUE(load(to, bytes));
    EXPECT_EQ(to.hash(0), rig.hash(0));
}

TEST(HostileStateTest, RowsThatTheirTypeCannotHave) {
    StateRig rig;
    rig.append(0, 3);
    StateHead head = head_of(rig);
    head.groups[0].type_k = KvType::kQ8_0;
    head.layers[0].values[0] = 33;
    expect_bad(Forged(head), "layer");
    head.layers[0].values[0] = 0;  // and values without keys
    expect_bad(Forged(head), "layer");
}

// A chunk under a sound checksum, of a layer that has no rows: it stands where another belongs.
TEST(HostileStateTest, RowsOfALayerThatKeepsNone) {
    RigOptions options;
    options.kind = {"shared", {GroupKind::full()}, {{0, 2, 32, 64}, {0, 2, 32, 64, 0}}};
    StateRig rig(options);
    rig.append(0, 3);
    const StateHead head = head_of(rig);
    EXPECT_EQ(head.layers[1].values[0], 0);
    EXPECT_EQ(head.layers[1].values[1], 0);
    for (const uint32_t layer : {0u, 1u}) {
        Forged state(head);
        for (const uint32_t side : {0u, 1u})
            state.put_chunk({ChunkHeader::kRows, ChunkHeader::kStored, layer, side, 0, 3},
                            std::vector<std::byte>(size_t{3} * (side == 0 ? 64 : 128) * 2));
        if (layer == 0)  // all that belongs there, and then more
            state.put_chunk({ChunkHeader::kRows, ChunkHeader::kStored, 1, 0, 0, 3}, {});
        const uint64_t before = rig.hash(0);
        const auto loaded = load(rig, state.bytes());
        ASSERT_FALSE(loaded);
        EXPECT_EQ(loaded.error().code, Code::kBadFile) << loaded.error().message;
        EXPECT_NE(loaded.error().message.find("is not"), std::string::npos)
            << loaded.error().message;
        EXPECT_EQ(rig.hash(0), before);
    }
}

// Loaded, it would take all that the sequences hold, and give nothing.
TEST(HostileStateTest, NoGroupAtAll) {
    StateRig rig;
    rig.append(0, 3);
    StateHead head = head_of(rig);
    head.groups[0].saved = false;
    head.groups[0].positions.clear();
    expect_bad(Forged(head), "no group");
}

TEST(HostileStateTest, TheSameSequenceTwice) {
    StateRig rig;
    rig.append(0, 3);
    StateHead head = head_of(rig);
    head.seqs.push_back(head.seqs[0]);
    expect_bad(Forged(head), "twice");
}

TEST(HostileStateTest, CheckpointsThatDoNotAscend) {
    StateRig rig;
    rig.append(0, 3);
    StateHead head = head_of(rig);
    for (const std::vector<Pos>& checkpoints :
         std::vector<std::vector<Pos>>{{1, 1}, {1, 0}, {-1}}) {
        head.seqs[0].checkpoints = checkpoints;
        expect_bad(Forged(head), "checkpoints");
    }
}

// Of checkpoints beyond the memory's limit only the last would stay: the others must cost nothing.
TEST(HostileStateTest, ManyCheckpoints) {
    MemoryConfig config;
    config.kinds = {GroupKind::sliding(60000)};
    config.layers = {{0, 1, 8, 8}};
    config.page_size = 1;
    config.n_cells = 1 << 16;
    config.max_checkpoints = 4;
    auto memory = Memory::create(config);
    ASSERT_TRUE(memory);
    constexpr uint32_t kCells = 40000;
    StateHead head = describe_memory(**memory);
    head.identity = test_identity();
    head.groups[0].saved = true;
    auto& sequence = head.seqs.emplace_back();
    for (uint32_t i = 0; i < kCells; i++) {
        head.groups[0].positions.push_back(static_cast<Pos>(i));
        sequence.checkpoints.push_back(static_cast<Pos>(i));
    }
    sequence.tracks.resize(1);
    sequence.tracks[0].runs = {{0, kCells, 0}};
    MemorySink sink;
    ChunkWriter writer(sink, false);
    ASSERT_TRUE(writer.write_head(head));
    ASSERT_TRUE(for_each_piece(head, [&](const StatePiece& piece) {
        writer.payload(piece.count * head.row_bytes(piece.layer, piece.side));
        return writer.write_piece(piece);
    }));
    ASSERT_TRUE(writer.finish());
    MemorySource source(sink.bytes());
    const auto begin = std::chrono::steady_clock::now();
    const auto loaded = load_state(**memory, test_identity(), source, {});
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
    std::vector<Pos> kept;
    for (const Checkpoint& checkpoint : (*memory)->cells().checkpoints(SeqId{0}))
        kept.push_back(checkpoint.pos);
    EXPECT_EQ(kept, (std::vector<Pos>{kCells - 4, kCells - 3, kCells - 2, kCells - 1}));
}

// Names go to terminals, and into messages of one line.
TEST(HostileStateTest, NamesOfModelsAreShownTame) {
    StateRig rig;
    rig.append(0, 3);
    StateHead head = head_of(rig);
    head.identity.weights[0] ^= 1;
    head.identity.model = "evil\x1b[2J\n\x7f" + std::string(100000, 'x');
    const auto loaded = load(rig, Forged(head).bytes());
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::kUnsupported);
    EXPECT_NE(loaded.error().message.find("evil?[2J??xxx"), std::string::npos)
        << loaded.error().message.substr(0, 200);
    EXPECT_LT(loaded.error().message.size(), 400);
    for (const char c : loaded.error().message)
        EXPECT_GE(static_cast<unsigned char>(c), 0x20);
}

// A pipe does not say how much is to come: what is taken for it grows with what came.
TEST(HostileStateTest, LongHeadsFromPipes) {
    class Pipe : public MemorySource {
    public:
        using MemorySource::MemorySource;
        std::optional<uint64_t> remaining() const override { return std::nullopt; }
    };
    StateRig rig;
    rig.append(0, 3);
    StateHead head = head_of(rig);
    head.seqs[0].tokens.assign(5 << 20, 7);
    Forged state(head);
    Pipe pipe(state.bytes());
    forget_allocations();
    const auto found = inspect_state(pipe);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->head.seqs[0].tokens.size(), 5 << 20);
    EXPECT_LE(greatest_allocation(), 2 * state.bytes().size());
    ByteWriter cut;
    cut.put(Preamble{});
    ChunkHeader header{ChunkHeader::kHead};
    header.stored = uint64_t{1} << 50;
    cut.put(header);
    cut.put(std::array<uint64_t, 2>{});
    Pipe short_pipe(cut.bytes());
    forget_allocations();
    EXPECT_FALSE(inspect_state(short_pipe));
    EXPECT_LE(greatest_allocation(), (size_t{1} << 20) + 1024);
}

}  // namespace
}  // namespace cellar::testing
