#include "cli/inspect_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "engine/model_identity.h"
#include "gguf/printable.h"

namespace cellar::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string kind_text(const GroupKind& kind) {
    switch (kind.type) {
        case GroupKind::Type::kFull:
            return "full";
        case GroupKind::Type::kStandard:
            return fmt::format("sliding window of {}", kind.window);
        case GroupKind::Type::kChunked:
            return fmt::format("blocks of {}", kind.window);
        case GroupKind::Type::kWhole:
            return "whole, not causal";
        case GroupKind::Type::kSymmetric:
            return fmt::format("window of {} on both sides", kind.window);
        case GroupKind::Type::kRecurrent:
            break;
    }
    return "recurrent";
}

// Layers with rows of their own.
uint32_t layers_of(const StateHead& head, uint32_t group) {
    return static_cast<uint32_t>(std::count_if(
        head.layers.begin(), head.layers.end(),
        [group](const StateHead::Layer& layer) { return layer.group == group && layer.keeps(); }));
}

// Cells that the sequence sees in a group.
uint64_t cells_seen(const LoadTrack& track) {
    uint64_t n = 0;
    for (const LoadRun& run : track.runs) {
        n += run.count;
    }
    return n;
}

Json groups_of(const StateHead& head) {
    Json groups = Json::array();
    for (uint32_t g = 0; g < head.groups.size(); g++) {
        const StateHead::Group& group = head.groups[g];
        groups.push_back({{"kind", kind_text(group.kind)},
                          {"layers", layers_of(head, g)},
                          {"type_k", name(group.type_k)},
                          {"type_v", name(group.type_v)},
                          {"saved", group.saved},
                          {"cells", group.saved ? head.n_cells(g) : 0}});
    }
    return groups;
}

Json sequences_of(const StateHead& head) {
    Json sequences = Json::array();
    for (const StateHead::Sequence& seq : head.seqs) {
        Json cells = Json::array();
        for (const LoadTrack& track : seq.tracks) {
            cells.push_back(cells_seen(track));
        }
        sequences.push_back({{"seq", value(seq.seq)},
                             {"tokens", seq.tokens.size()},
                             {"cells", std::move(cells)},
                             {"checkpoints", seq.checkpoints}});
    }
    return sequences;
}

std::map<std::string_view, size_t> tensors_by_type(const GgufFile& file) {
    std::map<std::string_view, size_t> types;
    for (const TensorInfo& tensor : file.tensors()) {
        types[type_name(tensor)]++;
    }
    return types;
}

uint64_t parameters_of(const GgufFile& file) {
    uint64_t n = 0;
    for (const TensorInfo& tensor : file.tensors()) {
        n += static_cast<uint64_t>(tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3]);
    }
    return n;
}

FileDigests digests_of(const GgufFile& file) {
    const auto memo = DigestMemo::of_user();
    return memo ? memo->digests(file) : digest_file(file);
}

}  // namespace

Json report_state(const StateInspection& inspection) {
    const StateHead& head = inspection.head;
    Json report = {{"file", "state"},
                   {"bytes", inspection.bytes},
                   {"model", printable(head.identity.model)},
                   {"weights", to_hex(head.identity.weights)},
                   {"tokenizer", to_hex(head.identity.tokenizer)},
                   {"rope", to_hex(head.identity.rope)},
                   {"adapters", head.identity.adapters.size()},
                   {"bytes_cells", inspection.bytes_cells},
                   {"groups", groups_of(head)},
                   {"sequences", sequences_of(head)},
                   {"sound", inspection.verified.has_value()}};
    if (!inspection.verified) {
        report["damage"] = inspection.verified.error().message;
    }
    return report;
}

std::string text_of_state(const StateInspection& inspection) {
    const StateHead& head = inspection.head;
    const Identity& identity = head.identity;
    std::string text = fmt::format(
        "state, {} bytes, {} of them keys and values\n"
        "model: {}\n  weights   {}\n  tokenizer {}\n  rope      {}\n  adapters  {}\n",
        inspection.bytes, inspection.bytes_cells, printable(identity.model),
        to_hex(identity.weights), to_hex(identity.tokenizer), to_hex(identity.rope),
        identity.adapters.size());
    for (uint32_t g = 0; g < head.groups.size(); g++) {
        const StateHead::Group& group = head.groups[g];
        text += fmt::format(
            "group {}: {}, {} layers, keys {}, values {}, {}\n", g, kind_text(group.kind),
            layers_of(head, g), name(group.type_k), name(group.type_v),
            group.saved ? fmt::format("{} cells", head.n_cells(g)) : "not in this state");
    }
    for (const StateHead::Sequence& seq : head.seqs) {
        text += fmt::format("sequence {}: {} tokens, {} checkpoints; cells seen by group:",
                            value(seq.seq), seq.tokens.size(), seq.checkpoints.size());
        for (const LoadTrack& track : seq.tracks) {
            text += fmt::format(" {}", cells_seen(track));
        }
        text += "\n";
    }
    return text + (inspection.verified ? "all checksums are right\n"
                                       : "damaged: " + inspection.verified.error().message + "\n");
}

Json report_gguf(const GgufFile& file) {
    const FileDigests digests = digests_of(file);
    Json metadata = Json::object();
    for (const std::string_view key : file.keys()) {
        metadata[printable(key)] = file.shown(key);
    }
    return {{"file", "gguf"},
            {"bytes", file.mapping()->bytes().size()},
            {"parameters", parameters_of(file)},
            {"tensors", tensors_by_type(file)},
            {"weights", to_hex(digests.weights)},
            {"tokenizer", to_hex(digests.tokenizer)},
            {"metadata", std::move(metadata)}};
}

std::string text_of_gguf(const GgufFile& file) {
    const FileDigests digests = digests_of(file);
    std::string text =
        fmt::format("GGUF, {} bytes, {} parameters in {} tensors:", file.mapping()->bytes().size(),
                    parameters_of(file), file.tensors().size());
    for (const auto& [type, n] : tensors_by_type(file)) {
        text += fmt::format(" {} {}", n, type);
    }
    text += fmt::format("\n  weights   {}\n  tokenizer {}\n", to_hex(digests.weights),
                        to_hex(digests.tokenizer));
    for (const std::string_view key : file.keys()) {
        text += fmt::format("{} = {}\n", printable(key), file.shown(key));
    }
    return text;
}

}  // namespace cellar::cli
