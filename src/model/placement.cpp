#include "model/placement.h"

#include <ggml-cpp.h>

namespace cellar {

namespace {

// A batch in the trial operations. Some kernels are only for batches: ask for a large one.
constexpr int64_t kTrialTokens = 512;
constexpr size_t kTrialTensors = 8;

// The operation `use`, on weight `w`, as a graph would make it.
ggml_tensor* trial(ggml_context* context, ggml_tensor* w, Use use) {
    switch (use) {
        case Use::kMulMat: {
            ggml_tensor* x = ggml_new_tensor_4d(context, GGML_TYPE_F32, w->ne[0], kTrialTokens,
                                                w->ne[2], w->ne[3]);
            return ggml_mul_mat(context, w, x);
        }
        case Use::kGetRows:
            return ggml_get_rows(context, w,
                                 ggml_new_tensor_1d(context, GGML_TYPE_I32, kTrialTokens));
        case Use::kAdd:
            return ggml_add(context, ggml_new_tensor(context, GGML_TYPE_F32, 4, w->ne), w);
        case Use::kMul:
            return ggml_mul(context, ggml_new_tensor(context, GGML_TYPE_F32, 4, w->ne), w);
        case Use::kRope: {
            const int64_t n_dims = 2 * w->ne[0];  // a factor for each pair
            ggml_tensor* x = ggml_new_tensor_3d(context, GGML_TYPE_F32, n_dims, 1, kTrialTokens);
            ggml_tensor* positions = ggml_new_tensor_1d(context, GGML_TYPE_I32, kTrialTokens);
            return ggml_rope_ext(context, x, positions, w, static_cast<int>(n_dims),
                                 GGML_ROPE_TYPE_NORMAL, 0, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
        }
    }
    return nullptr;
}

bool supports(const Placement& placement, ggml_type type, std::span<const int64_t, 4> ne, Use use) {
    const ggml_init_params params{ggml_tensor_overhead() * kTrialTensors, nullptr, true};
    const ggml_context_ptr context(ggml_init(params));
    const ggml_backend_buffer_ptr memory(ggml_backend_buft_alloc_buffer(placement.memory, 0));
    if (!context || !memory) return false;
    ggml_tensor* w = ggml_new_tensor(context.get(), type, 4, ne.data());
    w->buffer = memory.get();  // the device looks at where its operands lie
    return ggml_backend_dev_supports_op(placement.device, trial(context.get(), w, use));
}

// The CPU's extra buffer types. They are reached by name, since a build may have none.
std::vector<ggml_backend_buffer_type_t> extra_buffer_types(ggml_backend_dev_t device) {
    const auto get =
        reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
    std::vector<ggml_backend_buffer_type_t> types;
    if (get == nullptr) return types;
    for (ggml_backend_buffer_type_t* type = get(device); type != nullptr && *type; ++type) {
        types.push_back(*type);
    }
    return types;
}

}  // namespace

std::vector<Placement> cpu_placements(bool repack) {
    std::vector<Placement> placements;
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (cpu == nullptr) return placements;
    if (repack) {
        for (ggml_backend_buffer_type_t type : extra_buffer_types(cpu)) {
            placements.push_back({cpu, type, true});
        }
    }
    placements.push_back({cpu, ggml_backend_dev_buffer_type(cpu), false});
    return placements;
}

std::optional<Placement> choose_placement(std::span<const Placement> placements, ggml_type type,
                                          std::span<const int64_t, 4> ne, Use use) {
    if (!usable(type, use)) return std::nullopt;
    for (const Placement& placement : placements) {
        if (supports(placement, type, ne, use)) return placement;
    }
    return std::nullopt;
}

bool usable(ggml_type type, Use use) {
    if (type == GGML_TYPE_F32) return true;
    if (use != Use::kMulMat && use != Use::kGetRows) return false;
    // Types of stored values can be converted to f32; integers and the types of intermediate
    // results (q8_1, q8_K) cannot.
    return ggml_get_type_traits(type)->to_float != nullptr;
}

const char* to_string(Use use) {
    switch (use) {
        case Use::kMulMat:
            return "a matrix product";
        case Use::kGetRows:
            return "a table look-up";
        case Use::kAdd:
            return "an addition";
        case Use::kMul:
            return "a multiplication";
        case Use::kRope:
            return "rotary positions";
    }
    return "an unknown operation";
}

}  // namespace cellar
