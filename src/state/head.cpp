#include "state/head.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>
#include <unordered_set>

#include "state/bytes.h"

namespace cellar {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;

// By their numbers in a state, which stay what they are whatever becomes of the enumerations: new
// ones are added at the end.
constexpr std::array kKinds = {
    GroupKind::Type::kFull,      GroupKind::Type::kStandard,  GroupKind::Type::kChunked,
    GroupKind::Type::kSymmetric, GroupKind::Type::kRecurrent, GroupKind::Type::kWhole,
};
constexpr std::array kTypes = {
    KvType::kF32,  KvType::kF16,  KvType::kBf16, KvType::kQ8_0,  KvType::kQ4_0,
    KvType::kQ4_1, KvType::kQ5_0, KvType::kQ5_1, KvType::kIq4Nl,
};

template <class T, size_t n>
uint32_t number_of(const std::array<T, n>& list, T value) {
    const auto at = std::find(list.begin(), list.end(), value);
    assert(at != list.end() && "it has no number in the format");
    return static_cast<uint32_t>(at - list.begin());
}

template <class T, size_t n>
std::optional<T> with_number(const std::array<T, n>& list, uint32_t number) {
    return number < n ? std::optional<T>(list[number]) : std::nullopt;
}

// What no model reaches, so that sizes computed from a head cannot overflow.
constexpr uint32_t kMaxGroups = 16;
constexpr uint64_t kMaxValues = uint64_t{1} << 30;

// A sequence that sees a cell of one group takes at least 36 bytes. Many that see nothing would
// take more memory than they are bytes.
constexpr uint32_t kFewSeqs = 64;
constexpr uint32_t kLeastSeqBytes = 32;

tl::unexpected<Error> damaged(const char* what) {
    return fail(Code::kBadFile, fmt::format("the state is damaged: {}", what));
}

void put_identity(ByteWriter& out, const Identity& identity) {
    out.put_text(identity.model);
    out.put(identity.weights);
    out.put(identity.tokenizer);
    out.put(identity.rope);
    out.put(static_cast<uint32_t>(identity.adapters.size()));
    for (const Identity::Adapter& adapter : identity.adapters) {
        out.put(adapter.content);
        out.put(adapter.scale);
    }
}

Identity get_identity(ByteReader& in) {
    Identity identity;
    identity.model = in.get_text();
    identity.weights = in.get<Digest>();
    identity.tokenizer = in.get<Digest>();
    identity.rope = in.get<Digest>();
    identity.adapters.resize(in.get_count(sizeof(Digest) + sizeof(float)));
    for (Identity::Adapter& adapter : identity.adapters) {
        adapter.content = in.get<Digest>();
        adapter.scale = in.get<float>();
    }
    return identity;
}

void put_group(ByteWriter& out, const StateHead::Group& group) {
    out.put(number_of(kKinds, group.kind.type));
    out.put(group.kind.window);
    out.put(number_of(kTypes, group.type_k));
    out.put(number_of(kTypes, group.type_v));
    out.put(static_cast<uint32_t>(group.saved ? 1 : 0));
    out.put_list(std::span<const Pos>(group.positions));
}

bool get_group(ByteReader& in, uint32_t n_pos, StateHead::Group& group) {
    const auto kind = with_number(kKinds, in.get<uint32_t>());
    const auto window = in.get<uint32_t>();
    const auto type_k = with_number(kTypes, in.get<uint32_t>());
    const auto type_v = with_number(kTypes, in.get<uint32_t>());
    const auto saved = in.get<uint32_t>();
    group.positions = in.get_list<Pos>();
    if (!in.ok() || !kind || !type_k || !type_v || saved > 1) return false;
    group.kind = {*kind, window};
    group.type_k = *type_k;
    group.type_v = *type_v;
    group.saved = saved == 1;
    return group.positions.size() % n_pos == 0 && (group.saved || group.positions.empty());
}

void put_track(ByteWriter& out, const LoadTrack& track) {
    out.put(track.begin);
    out.put_list(std::span<const LoadRun>(track.runs));
    out.put_list(std::span<const Range>(track.forgotten));
}

LoadTrack get_track(ByteReader& in) {
    LoadTrack track;
    track.begin = in.get<Pos>();
    track.runs = in.get_list<LoadRun>();
    track.forgotten = in.get_list<Range>();
    return track;
}

bool get_layer(ByteReader& in, const StateHead& head, StateHead::Layer& layer) {
    layer.group = in.get<uint32_t>();
    layer.values[0] = in.get<uint64_t>();
    layer.values[1] = in.get<uint64_t>();
    return in.ok() && layer.group < head.groups.size() &&
           std::max(layer.values[0], layer.values[1]) <= kMaxValues;
}

// Both of a layer's sides have rows, of their type, or neither has.
bool rows_fit(const StateHead& head, uint32_t layer) {
    const StateHead::Layer& kept = head.layers[layer];
    if (kept.values[0] == 0 && kept.values[1] == 0) return true;
    return head.row_bytes(layer, Side::kKeys) > 0 && head.row_bytes(layer, Side::kValues) > 0;
}

bool get_sequence(ByteReader& in, const StateHead& head, StateHead::Sequence& sequence) {
    sequence.seq = SeqId{in.get<int32_t>()};
    sequence.tokens = in.get_list<Token>();
    sequence.checkpoints = in.get_list<Pos>();
    sequence.tracks.resize(head.groups.size());
    for (size_t g = 0; g < head.groups.size(); g++)
        if (head.groups[g].saved) sequence.tracks[g] = get_track(in);
    return in.ok() && value(sequence.seq) >= 0;
}

bool ascend(const std::vector<Pos>& positions) {
    Pos before = -1;
    for (const Pos p : positions) {
        if (p <= before) return false;
        before = p;
    }
    return true;
}

Result<void> get_groups(ByteReader& in, StateHead& head) {
    head.groups.resize(std::min(in.get_count(6 * sizeof(uint32_t)), kMaxGroups + 1));
    if (head.groups.empty() || head.groups.size() > kMaxGroups)
        return damaged("it has no groups of layers, or too many");
    bool any = false;
    for (StateHead::Group& group : head.groups) {
        if (!get_group(in, head.n_pos, group)) return damaged("a group makes no sense");
        any = any || group.saved;
    }
    // Loaded, it would take what sequences hold and give nothing.
    if (!any) return damaged("it has the cells of no group");
    return {};
}

Result<void> get_layers(ByteReader& in, StateHead& head) {
    head.layers.resize(in.get_count(sizeof(uint32_t) + 2 * sizeof(uint64_t)));
    for (uint32_t i = 0; i < head.layers.size(); i++) {
        if (!get_layer(in, head, head.layers[i])) return damaged("a layer makes no sense");
        if (!rows_fit(head, i)) return damaged("the rows of a layer cannot be of their type");
    }
    return {};
}

Result<void> get_sequences(ByteReader& in, size_t head_bytes, StateHead& head) {
    const uint32_t n = in.get_count(3 * sizeof(uint32_t));
    if (n > kFewSeqs && head_bytes / n < kLeastSeqBytes)
        return damaged("it has more sequences than could see anything");
    std::unordered_set<int32_t> named;
    for (uint32_t s = 0; s < n; s++) {
        StateHead::Sequence& sequence = head.seqs.emplace_back();
        if (!get_sequence(in, head, sequence)) return damaged("a sequence makes no sense");
        if (!named.insert(value(sequence.seq)).second) return damaged("it has a sequence twice");
        if (!ascend(sequence.checkpoints)) return damaged("checkpoints do not ascend");
    }
    return {};
}

}  // namespace

StateHead describe_memory(const Memory& memory) {
    StateHead head;
    const Cells& cells = memory.cells();
    head.n_pos = cells.n_pos();
    for (uint32_t g = 0; g < cells.n_groups(); g++)
        head.groups.push_back({cells.kind(g),
                               row_type(memory, g, Side::kKeys),
                               row_type(memory, g, Side::kValues),
                               false,
                               {}});
    for (uint32_t layer = 0; layer < memory.config().layers.size(); layer++)
        head.layers.push_back(
            {memory.config().layers[layer].group,
             {row_values(memory, layer, Side::kKeys), row_values(memory, layer, Side::kValues)}});
    return head;
}

std::vector<std::byte> encode_head(const StateHead& head) {
    ByteWriter out;
    put_identity(out, head.identity);
    out.put(head.n_pos);
    out.put(static_cast<uint32_t>(head.groups.size()));
    for (const StateHead::Group& group : head.groups)
        put_group(out, group);
    out.put(static_cast<uint32_t>(head.layers.size()));
    for (const StateHead::Layer& layer : head.layers) {
        out.put(layer.group);
        out.put(layer.values[0]);
        out.put(layer.values[1]);
    }
    out.put(static_cast<uint32_t>(head.seqs.size()));
    for (const StateHead::Sequence& sequence : head.seqs) {
        out.put(sequence.seq);
        out.put_list(std::span<const Token>(sequence.tokens));
        out.put_list(std::span<const Pos>(sequence.checkpoints));
        for (size_t g = 0; g < head.groups.size(); g++)
            if (head.groups[g].saved) put_track(out, sequence.tracks[g]);
    }
    return {out.bytes().begin(), out.bytes().end()};
}

Result<StateHead> decode_head(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    StateHead head;
    head.identity = get_identity(in);
    head.n_pos = in.get<uint32_t>();
    if (head.n_pos < 1 || head.n_pos > 4) return damaged("positions have no such components");
    if (auto ok = get_groups(in, head); !ok) return pass(std::move(ok));
    if (auto ok = get_layers(in, head); !ok) return pass(std::move(ok));
    if (auto ok = get_sequences(in, bytes.size(), head); !ok) return pass(std::move(ok));
    if (!in.at_end()) return damaged("its head does not end where it should");
    return head;
}

uint32_t rows_per_chunk(size_t row_bytes) {
    return static_cast<uint32_t>(std::max<size_t>(1, kChunkBytes / std::max<size_t>(1, row_bytes)));
}

}  // namespace cellar
