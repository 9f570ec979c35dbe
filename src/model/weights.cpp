#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

namespace cellar {

namespace {

// ggml's CPU kernels load whole vectors from where a tensor begins; its own buffers align to this.
constexpr uint64_t kTensorAlignment = 32;

std::string shape_text(std::span<const int64_t> ne) {
    return fmt::format("[{}]", fmt::join(ne, ", "));
}

// Dimensions without the ones at the end.
std::span<const int64_t> trimmed(const std::array<int64_t, 4>& ne) {
    size_t n = ne.size();
    while (n > 1 && ne[n - 1] == 1)
        --n;
    return {ne.data(), n};
}

}  // namespace

WeightsLoader::WeightsLoader(const GgufFile& file, WeightsOptions options)
    : file_(file), options_(std::move(options)), placements_(cpu_placements(options_.repack)) {
    auto placed = place_layers(file, options_.offloads);
    if (placed) {
        devices_ = std::move(*placed);
    } else {
        problem_ = std::move(placed).error();
    }
}

// The device that a weight belongs on; null: the CPU. Tables are looked up there, and frequency
// factors are every layer's.
ggml_backend_dev_t WeightsLoader::device_of(std::string_view name, Use use) const {
    if (devices_.empty() || use == Use::kGetRows || use == Use::kRope) return nullptr;
    constexpr std::string_view kLayer = "blk.";
    if (name.substr(0, kLayer.size()) != kLayer) return devices_.back();
    size_t layer = 0;
    std::from_chars(name.data() + kLayer.size(), name.data() + name.size(), layer);
    return layer < devices_.size() ? devices_[layer] : nullptr;
}

ggml_tensor* WeightsLoader::require(std::string_view name, std::initializer_list<int64_t> ne,
                                    Use use) {
    if (has(name)) return find(name, ne, use);
    return refuse(Code::kBadFile, fmt::format("tensor '{}' of shape {} is missing", name,
                                              shape_text({ne.begin(), ne.size()})));
}

ggml_tensor* WeightsLoader::find(std::string_view name, std::initializer_list<int64_t> ne,
                                 Use use) {
    const TensorInfo* info = file_.find_tensor(name);
    if (problem_ || info == nullptr || !check_shape(*info, ne)) return nullptr;
    return place(*info, use);
}

bool WeightsLoader::check_shape(const TensorInfo& info, std::initializer_list<int64_t> ne) {
    std::array<int64_t, 4> expected{1, 1, 1, 1};
    std::copy_n(ne.begin(), std::min(ne.size(), expected.size()), expected.begin());
    if (expected == info.ne) return true;
    refuse(Code::kBadFile,
           fmt::format("tensor '{}' has shape {} where {} is expected", info.name,
                       shape_text(trimmed(info.ne)), shape_text(trimmed(expected))));
    return false;
}

ggml_tensor* WeightsLoader::place(const TensorInfo& info, Use use) {
    auto placement = std::optional<Placement>();
    if (ggml_backend_dev_t device = device_of(info.name, use)) {
        const Placement there{device, ggml_backend_dev_buffer_type(device), false};
        placement = choose_placement({&there, 1}, info.type, info.ne, use);
    }
    if (!placement) placement = choose_placement(placements_, info.type, info.ne, use);
    if (!placement)
        return refuse(Code::kUnsupported,
                      fmt::format("tensor '{}' has type {}, which {} cannot read here", info.name,
                                  ggml_type_name(info.type), to_string(use)));
    Group* group = group_for(*placement, info);
    if (group == nullptr) return refuse(Code::kBackend, "no memory for tensor descriptions");

    ggml_tensor*& tensor = placed_[{&info, group}];
    if (tensor != nullptr) return tensor;
    tensor = ggml_new_tensor(group->context.get(), info.type, 4, info.ne.data());
    ggml_set_name(tensor, std::string(info.name).c_str());
    group->tensors.emplace_back(tensor, &info);
    return tensor;
}

WeightsLoader::Group* WeightsLoader::group_for(const Placement& placement, const TensorInfo& info) {
    const bool plain = placement.memory == ggml_backend_cpu_buffer_type();
    const bool mapped = options_.use_mmap && plain && info.offset % kTensorAlignment == 0;
    for (const auto& group : groups_) {
        if (group->memory == placement.memory && group->mapped == mapped) return group.get();
    }
    // Each tensor of the file enters a group at most once.
    const size_t size = ggml_tensor_overhead() * file_.tensors().size();
    auto group = std::make_unique<Group>();
    group->context.reset(ggml_init({size, nullptr, true}));
    if (!group->context) return nullptr;
    group->memory = placement.memory;
    group->repacks = placement.repacks;
    group->mapped = mapped;
    groups_.push_back(std::move(group));
    return groups_.back().get();
}

std::nullptr_t WeightsLoader::refuse(Code code, std::string message) {
    if (!problem_)
        problem_ = Error{code, fmt::format("{}: {}", file_.path(), message), std::nullopt};
    return nullptr;
}

// The second phase: gives each group its buffer and fills it.
class WeightsLoader::Filler {
public:
    Filler(const GgufFile& file, const Progress& progress, Weights& weights)
        : file_(file), progress_(progress), weights_(weights) {}

    Result<void> fill(const std::vector<std::unique_ptr<Group>>& groups) {
        for (const auto& group : groups) {
            for (const auto& entry : group->tensors)
                total_ += entry.second->bytes;
        }
        // Mapped groups first: which pages of the file must stay is then known.
        for (const bool mapped : {true, false}) {
            for (const auto& group : groups) {
                if (group->mapped != mapped) continue;
                if (auto done = mapped ? map(*group) : copy(*group); !done) return done;
            }
        }
        return {};
    }

private:
    std::byte* base() const { return const_cast<std::byte*>(weights_.mapping_->bytes().data()); }

    // Points the group's tensors into the file.
    Result<void> map(const Group& group) {
        const size_t size = weights_.mapping_->bytes().size();
        ggml_backend_buffer_ptr buffer(ggml_backend_cpu_buffer_from_ptr(base(), size));
        if (!buffer) return no_memory(0);
        for (const auto& [tensor, info] : group.tensors) {
            if (ggml_backend_tensor_alloc(buffer.get(), tensor, base() + info->offset) !=
                GGML_STATUS_SUCCESS)
                return no_memory(info->bytes);
            mapped_.insert(info);
            weights_.bytes_mapped_ += info->bytes;
            weights_.mapping_->prefetch(info->offset, info->bytes);
            if (auto told = advance(info->bytes); !told) return told;
        }
        keep(std::move(buffer));
        return {};
    }

    // Writes the group's tensors into a buffer of their own.
    Result<void> copy(const Group& group) {
        ggml_backend_buffer_ptr buffer(
            ggml_backend_alloc_ctx_tensors_from_buft(group.context.get(), group.memory));
        if (!buffer) return no_memory(size_of(group));
        for (const auto& [tensor, info] : group.tensors) {
            ggml_backend_tensor_set(tensor, base() + info->offset, 0, info->bytes);
            // Otherwise the file would take memory beside the copy, until the system needs it.
            if (!mapped_.contains(info)) weights_.mapping_->release(info->offset, info->bytes);
            if (auto told = advance(info->bytes); !told) return told;
        }
        size_t& bytes = group.repacks ? weights_.bytes_repacked_ : weights_.bytes_copied_;
        bytes += ggml_backend_buffer_get_size(buffer.get());
        keep(std::move(buffer));
        return {};
    }

    void keep(ggml_backend_buffer_ptr buffer) {
        ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        weights_.buffers_.push_back(std::move(buffer));
    }

    Result<void> advance(uint64_t bytes) {
        done_ += bytes;
        if (!progress_ || progress_(static_cast<double>(done_) / static_cast<double>(total_)))
            return {};
        return fail(Code::kCancelled, fmt::format("{}: loading was cancelled", file_.path()));
    }

    static uint64_t size_of(const Group& group) {
        uint64_t bytes = 0;
        for (const auto& entry : group.tensors)
            bytes += entry.second->bytes;
        return bytes;
    }

    tl::unexpected<Error> no_memory(uint64_t bytes) const {
        return fail(Code::kBackend,
                    fmt::format("{}: no memory for {} bytes of weights", file_.path(), bytes));
    }

    const GgufFile& file_;
    const Progress& progress_;
    Weights& weights_;
    std::unordered_set<const TensorInfo*> mapped_;
    uint64_t done_ = 0;
    uint64_t total_ = 0;
};

Result<Weights> WeightsLoader::load(const Progress& progress) && {
    if (problem_) return tl::unexpected<Error>(std::move(*problem_));
    Weights weights;
    weights.mapping_ = file_.mapping();
    if (auto filled = Filler(file_, progress, weights).fill(groups_); !filled)
        return pass(std::move(filled));
    for (auto& group : groups_)
        weights.contexts_.push_back(std::move(group->context));
    return weights;
}

}  // namespace cellar
