// Any bytes as a state: inspected, and loaded into a memory that holds sequences. Sealed ones
// (state_sealer.h) pass the checksums, so that what stands behind them is reached.
//
// Input: a byte of flags, a byte of groups to load, then the state; of a sealed one two bytes of
// the head's length, the head, and what its rows are filled with.

#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cells/audit.h"
#include "state/inspection.h"
#include "state/loader.h"
#include "state/saving.h"
#include "state/seen_hash.h"
#include "state_sealer.h"
#include "testing/poison.h"

namespace cellar::testing {
namespace {

enum Flags : uint8_t {
    kSealed = 1,
    kConvert = 2,
    kPipe = 4,    // nobody knows how much there is
    kPlaces = 8,  // positions of four components
    kInto = 16,   // the only sequence becomes sequence 1
    kPacked = 32,
    kGarbage = 64,
    kSomeGroups = 128,
};

// Messages, a chunk's rows unpacked and zstd's own: what does not depend on the bytes.
constexpr size_t kFixedBytes = size_t{1536} << 10;
constexpr size_t kSealedBytes = size_t{64} << 10;

std::atomic<size_t> g_greatest = 0;

void saw_allocation(const volatile void*, size_t size) {
    g_greatest = std::max<size_t>(g_greatest, size);
}
void saw_free(const volatile void*) {
}

void must(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

class PipeSource : public MemorySource {
public:
    using MemorySource::MemorySource;
    std::optional<uint64_t> remaining() const override { return std::nullopt; }
};

Identity fuzz_identity() {
    Identity identity;
    identity.model = "fuzz";
    return identity;
}

std::unique_ptr<Memory> make_memory(bool places) {
    MemoryConfig config;
    if (places) {
        config.kinds = {GroupKind::full(), GroupKind::chunked(9)};
        config.layers = {{0, 2, 32, 32}, {1, 1, 32, 32}};
        config.n_pos = 4;
    } else {
        config.kinds = {GroupKind::full(), GroupKind::recurrent(), GroupKind::sliding(6)};
        config.layers = {{0, 1, 32, 8}, {1, 1, 4, 10}, {2, 1, 32, 16}};
    }
    config.type_k = KvType::kQ8_0;
    config.n_cells = 64;
    config.n_states = 32;
    config.page_size = 4;
    config.n_rollback = 2;
    config.max_checkpoints = 3;
    config.checkpoint_bytes = 4096;
    return *Memory::create(config);
}

// Whether there was room. Rows stay as they are.
bool append(Memory& memory, SeqId seq, uint32_t n) {
    Batch batch(memory.config().n_pos);
    const int64_t next = int64_t{memory.seq_pos_max(seq)} + 1;
    if (next + n >= kMaxPos) return false;
    for (uint32_t i = 0; i < n; i++) {
        const std::vector<Pos> place(memory.config().n_pos, static_cast<Pos>(next + i));
        if (batch.n_pos() == 1) {
            batch.add(0, seq);
        } else {
            batch.add_at(0, std::span(&seq, 1), place);
        }
    }
    SplitOptions options;
    options.splitting = Splitting::kPerSequence;
    options.max_ubatch = 7;
    auto plan = memory.prepare(batch, options);
    for (size_t i = 0; plan && i < plan->size(); i++)
        must(memory.apply_moves(*plan, i) && memory.commit(*plan, i), "a step that was planned");
    return plan.has_value();
}

// Two sequences that share a part, and one alone.
void fill(Memory& memory) {
    must(append(memory, SeqId{0}, 9) && memory.seq_cp(SeqId{0}, SeqId{1}, -1, -1) &&
             append(memory, SeqId{1}, 3) && append(memory, SeqId{3}, 6),
         "room to begin with");
}

struct Snapshot {
    std::vector<std::string> hashes;
    std::vector<uint32_t> free;

    explicit Snapshot(const Memory& memory) {
        for (const int seq : {0, 1, 3})
            hashes.push_back(hash_seen(memory, SeqId{seq}));
        for (uint32_t g = 0; g < memory.cells().n_groups(); g++)
            free.push_back(memory.cells().pool(g).n_free());
    }
    friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

void must_be_sound(const Memory& memory) {
    const auto finding = audit(memory.cells());
    must(!finding, finding ? finding->c_str() : "");
    must(!memory.cells().busy(), "a load stayed open");
}

// Of loaded sequences, what was saved again loads as the same.
void must_come_back(const Memory& memory, bool places) {
    MemorySink sink;
    const auto saving = Saving::begin(memory, fuzz_identity(), {}, {});
    must(saving && saving->write(sink), "what was loaded can be saved");
    const auto other = make_memory(places);
    MemorySource source(sink.bytes());
    const auto loaded = load_state(*other, fuzz_identity(), source, {});
    if (!loaded) std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    must(loaded || loaded.error().code == Code::kNoRoom, "what was saved can be loaded");
    if (!loaded) return;
    for (const SeqId seq : memory.cells().sequences())
        must(hash_seen(memory, seq) == hash_seen(*other, seq), "it comes back as it was");
}

void must_load_or_change_nothing(std::span<const std::byte> bytes, Source& source, uint8_t flags,
                                 uint8_t groups) {
    const auto memory = make_memory((flags & kPlaces) != 0);
    fill(*memory);
    poison(*memory);
    const Snapshot before(*memory);
    LoadStateOptions options;
    options.convert = (flags & kConvert) != 0;
    if ((flags & kInto) != 0) options.into = SeqId{1};
    for (uint32_t g = 0; g < 4 && (flags & kSomeGroups) != 0; g++)
        if ((groups >> g & 1) != 0) options.groups.push_back(g);
    g_greatest = 0;
    const auto loaded = load_state(*memory, fuzz_identity(), source, options);
    must(g_greatest <= 2 * bytes.size() + kFixedBytes, "loading took too much memory at once");
    must_be_sound(*memory);
    if (!loaded) return must(Snapshot(*memory) == before, "a failed load left a trace");
    must_come_back(*memory, (flags & kPlaces) != 0);
    for (const LoadedSequence& s : *loaded)
        append(*memory, s.seq, 9);
    must_be_sound(*memory);
    must(memory->seq_rm(kEverySeq, -1, -1).has_value(), "all can be forgotten");
    must_be_sound(*memory);
}

// Any head that can be read is of our model: the digests are not what is to be guessed.
std::vector<std::byte> sealed(std::span<const std::byte> input, uint8_t flags) {
    ByteReader in(input);
    const auto n = in.get<uint16_t>();
    input = input.subspan(std::min<size_t>(2, input.size()));
    auto head = input.first(std::min<size_t>(n, input.size()));
    StateSealer sealer(input.subspan(head.size()),
                       (flags & kGarbage) != 0  ? SealedRows::kGarbage
                       : (flags & kPacked) != 0 ? SealedRows::kPacked
                                                : SealedRows::kStored,
                       kSealedBytes);
    auto decoded = decode_head(head);
    if (!decoded) return sealer.seal(head);
    decoded->identity = fuzz_identity();
    return sealer.seal(encode_head(*decoded));
}

void run(std::span<const std::byte> input) {
    ByteReader in(input);
    const auto flags = in.get<uint8_t>(), groups = in.get<uint8_t>();
    if (!in.ok()) return;
    std::vector<std::byte> copy;
    auto bytes = input.subspan(2);
    if ((flags & kSealed) != 0) bytes = copy = sealed(bytes, flags);
    MemorySource looked_at(bytes);
    g_greatest = 0;
    (void)inspect_state(looked_at);
    must(g_greatest <= 2 * bytes.size() + kFixedBytes, "inspection took too much memory at once");
    MemorySource file(bytes);
    PipeSource pipe(bytes);
    must_load_or_change_nothing(bytes, (flags & kPipe) != 0 ? static_cast<Source&>(pipe) : file,
                                flags, groups);
}

}  // namespace
}  // namespace cellar::testing

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    __sanitizer_install_malloc_and_free_hooks(cellar::testing::saw_allocation,
                                              cellar::testing::saw_free);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    cellar::testing::run(std::as_bytes(std::span(data, size)));
    return 0;
}
