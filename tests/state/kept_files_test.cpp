// Files of each released version of the format, kept in tests/data/state: every later version
// loads them. What they must hold is written here in numbers, not computed.
//
// A new version gets files of its own beside them:
//   state_test --gtest_also_run_disabled_tests --gtest_filter='*WritesWhatIsMissing'
// after its rows were added to kept_files(); then the hashes that fail are those to write down.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "state/chunk_layout.h"
#include "state/inspection.h"
#include "state/seen_hash.h"
#include "state/state_rig.h"
#include "testing/scratch_file.h"

namespace cellar::testing {
namespace {

struct KeptSequence {
    int seq;
    std::vector<Token> tokens;
    const char* hash;  // hash_seen once it is loaded
    Pos last;
    std::vector<Pos> checkpoints = {};
};

struct KeptFile {
    const char* name;  // v<version>-<name>.state
    RigOptions options;
    void (*fill)(StateRig& rig);  // as the memory was when it was saved
    bool compress;
    std::vector<uint32_t> n_cells;  // by group
    uint64_t bytes_cells;
    std::vector<KeptSequence> seqs;

    friend void PrintTo(const KeptFile& file, std::ostream* out) { *out << file.name; }
};

RigOptions options_of(std::vector<GroupKind> kinds, std::vector<LayerKv> layers, KvType type_k,
                      KvType type_v) {
    RigOptions options;
    options.kind = {"kept", std::move(kinds), std::move(layers)};
    options.page_size = 4;
    options.n_cells = 64;
    options.type_k = type_k;
    options.type_v = type_v;
    return options;
}

void zero_rows(StateRig& rig, uint32_t layer, uint32_t n_rows) {
    for (ggml_tensor* pool : {rig->k(layer), rig->v(layer)}) {
        const std::vector<uint8_t> zeros(pool->nb[1] * n_rows, 0);
        ggml_backend_tensor_set(pool, zeros.data(), 0, zeros.size());
    }
}

// Two sequences that share a prompt; one has lost a part of its own and moved up.
void fill_forks(StateRig& rig) {
    rig.append(0, 13);
    ASSERT_TRUE(rig->seq_cp(SeqId{0}, SeqId{5}, -1, -1));
    rig.append(0, 2);
    rig.append(5, 7);
    ASSERT_TRUE(rig->seq_rm(SeqId{5}, 14, 16));
    ASSERT_TRUE(rig->seq_add(SeqId{5}, 16, -1, -2));
}

// All kinds of a hybrid model: its window has lost cells, its state has a checkpoint.
void fill_groups(StateRig& rig) {
    rig.append(3, 12, true);
    rig.append(3, 11);
}

// Images' positions, and rows that shrink.
void fill_packed(StateRig& rig) {
    rig.append(1, 21);
    zero_rows(rig, 0, 40);
}

std::vector<KeptFile> kept_files() {
    RigOptions packed = options_of({GroupKind::full(), GroupKind::chunked(9)},
                                   {{0, 2, 32, 32}, {1, 1, 32, 32}}, KvType::kQ4_0, KvType::kF32);
    packed.n_pos = 4;
    return {
        {"v1-forks",
         options_of({GroupKind::full()}, {{0, 1, 8, 4}, {0, 2, 4, 8}}, KvType::kF16, KvType::kF16),
         fill_forks,
         false,
         {21},
         21 * 2 * (8 + 4 + 8 + 16),
         {{0, {5, 6, 7}, "a0e45577cbb671887048f9a229c0c39e", 14},
          {5, {}, "37775df8990fff9e14d185b059487dfd", 17}}},
        {"v1-groups",
         options_of({GroupKind::full(), GroupKind::recurrent(), GroupKind::sliding(6)},
                    {{0, 1, 32, 8}, {1, 1, 4, 10}, {2, 1, 32, 16}}, KvType::kQ8_0, KvType::kBf16),
         fill_groups,
         false,
         {23, 4, 15},
         23 * (34 + 16) + 4 * 4 * (4 + 10) + 15 * (34 + 32),
         {{3, {70000, 1, 0, -1}, "7c0adced220557c982085476f853fd2f", 22, {11}}}},
        {"v1-packed",
         packed,
         fill_packed,
         true,
         {21, 5},
         21 * (36 + 256) + 5 * (18 + 128),
         {{1, {9}, "651b3547f8df8cfdf81c8cf3c0be46fc", 20}}}};
}

std::string path_of(const KeptFile& file) {
    return std::string(CELLAR_TEST_DATA "/state/") + file.name + ".state";
}

// What all of them were saved with.
Identity kept_identity() {
    Identity identity;
    identity.model = "a kept model";
    identity.weights.fill(0x11);
    identity.tokenizer.fill(0x22);
    identity.rope.fill(0x33);
    Identity::Adapter adapter;
    adapter.content.fill(0x44);
    adapter.scale = 0.75f;
    identity.adapters = {adapter};
    return identity;
}

std::string write_anew(const KeptFile& file) {
    StateRig rig(file.options);
    file.fill(rig);
    std::vector<SequenceToSave> list;
    for (const KeptSequence& s : file.seqs)
        list.push_back({SeqId{s.seq}, s.tokens});
    SaveOptions options;
    options.compress = file.compress;
    MemorySink sink;
    const auto saving = Saving::begin(*rig, kept_identity(), list, options);
    EXPECT_TRUE(saving && saving->write(sink));
    return {reinterpret_cast<const char*>(sink.bytes().data()), sink.bytes().size()};
}

bool has_packed_chunk(const std::string& bytes) {
    ChunkHeader header;
    for (size_t at = sizeof(Preamble); at + kHeaderBytes < bytes.size() - sizeof(Trailer);
         at += kHeaderBytes + header.stored) {
        std::memcpy(&header, bytes.data() + at, sizeof header);
        if (header.codec == ChunkHeader::kZstd) return true;
    }
    return false;
}

class KeptFilesTest : public ::testing::TestWithParam<KeptFile> {
protected:
    std::span<const std::byte> bytes() const { return std::as_bytes(std::span(text_)); }
    MemorySource source() const { return MemorySource(bytes()); }

    const KeptFile& file_ = GetParam();
    const std::string text_ = read_file(path_of(file_));
};

TEST_P(KeptFilesTest, LoadsAndIsSeenAsItWas) {
    for (const uint32_t page_size : {4u, 32u}) {
        RigOptions options = file_.options;
        options.page_size = page_size;
        options.n_cells = 256;
        StateRig to(options);
        to.append(2, 3);  // so that it stands elsewhere
        poison(*to);
        MemorySource bytes = source();
        const auto loaded = load_state(*to, kept_identity(), bytes, {});
        ASSERT_TRUE(loaded) << loaded.error().message;
        ASSERT_EQ(loaded->size(), file_.seqs.size());
        for (size_t s = 0; s < file_.seqs.size(); s++) {
            const KeptSequence& expected = file_.seqs[s];
            EXPECT_EQ(value(loaded->at(s).seq), expected.seq);
            EXPECT_EQ(loaded->at(s).tokens, expected.tokens);
            EXPECT_EQ(hash_seen(*to, SeqId{expected.seq}), expected.hash);
            EXPECT_EQ(to->seq_pos_max(SeqId{expected.seq}), expected.last);
            for (const Pos checkpoint : expected.checkpoints)
                EXPECT_TRUE(to->can_rm(SeqId{expected.seq}, checkpoint + 1, -1));
            to.append(expected.seq, 9);
        }
        to.expect_sound();
    }
}

TEST_P(KeptFilesTest, IsInspectedAsWhatItIs) {
    MemorySource bytes = source();
    const auto found = inspect_state(bytes);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(found->verified);
    EXPECT_EQ(found->bytes, text_.size());
    EXPECT_EQ(found->bytes_cells, file_.bytes_cells);
    EXPECT_EQ(has_packed_chunk(text_), file_.compress);
    const StateHead& head = found->head;
    EXPECT_EQ(head.identity, kept_identity());
    EXPECT_EQ(head.identity.model, "a kept model");
    EXPECT_EQ(head.n_pos, file_.options.n_pos);
    EXPECT_EQ(head.layers.size(), file_.options.kind.layers.size());
    ASSERT_EQ(head.groups.size(), file_.options.kind.kinds.size());
    ASSERT_EQ(head.groups.size(), file_.n_cells.size());
    for (uint32_t g = 0; g < head.groups.size(); g++) {
        EXPECT_EQ(head.groups[g].kind, file_.options.kind.kinds[g]);
        EXPECT_TRUE(head.groups[g].saved);
        EXPECT_EQ(head.n_cells(g), file_.n_cells[g]);
    }
    ASSERT_EQ(head.seqs.size(), file_.seqs.size());
    for (size_t s = 0; s < head.seqs.size(); s++) {
        EXPECT_EQ(value(head.seqs[s].seq), file_.seqs[s].seq);
        EXPECT_EQ(head.seqs[s].tokens, file_.seqs[s].tokens);
        EXPECT_EQ(head.seqs[s].checkpoints, file_.seqs[s].checkpoints);
    }
}

// Whoever changes a byte of what is written makes a new version. Of what zstd makes of it, its
// own version decides.
TEST_P(KeptFilesTest, IsStillWrittenByteForByte) {
    uint32_t version = 0;
    std::memcpy(&version, text_.data() + offsetof(Preamble, version), sizeof version);
    if (version != kStateVersion || file_.compress) GTEST_SKIP();
    EXPECT_TRUE(write_anew(file_) == text_);
}

INSTANTIATE_TEST_SUITE_P(Files, KeptFilesTest, ::testing::ValuesIn(kept_files()),
                         [](const auto& test) {
                             std::string name = test.param.name;
                             name[2] = '_';
                             return name;
                         });

TEST(KeptFiles, AllAreInTheTable) {
    std::set<std::string> there, known;
    for (const auto& entry : std::filesystem::directory_iterator(CELLAR_TEST_DATA "/state"))
        there.insert(entry.path().string());
    for (const KeptFile& file : kept_files())
        known.insert(path_of(file));
    EXPECT_EQ(there, known);
}

// Never over what is there: a released version's files stay what they are.
TEST(KeptFiles, DISABLED_WritesWhatIsMissing) {
    for (const KeptFile& file : kept_files()) {
        if (std::filesystem::exists(path_of(file))) continue;
        std::ofstream out(path_of(file), std::ios::binary);
        out << write_anew(file);
    }
}

}  // namespace
}  // namespace cellar::testing
