#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <optional>
#include <span>
#include <vector>

namespace cellar {

// The operation that a graph uses a weight with. It decides which memory may hold the weight.
enum class Use {
    kMulMat,   // first operand of ggml_mul_mat
    kGetRows,  // the table of ggml_get_rows
    kAdd,      // second operand of ggml_add: a bias
    kMul,      // second operand of ggml_mul: a norm or a scale
    kRope,     // frequency factors of ggml_rope_ext
};

// A kind of memory, and the device that computes with it.
struct Placement {
    ggml_backend_dev_t device = nullptr;
    ggml_backend_buffer_type_t memory = nullptr;
    bool repacks = false;  // an extra buffer type: rearranges weights as they are written
};

// Where weights for the CPU may lie, best first: ggml's extra buffer types (CPU_REPACK, AMX, ...)
// unless `repack` is false, then plain memory, which is always there and always last.
std::vector<Placement> cpu_placements(bool repack);

// The first placement whose device can do `use` on a weight of this type and shape there; nullopt
// if none can. `placements` are asked by a trial operation, as ggml has no other way to tell.
std::optional<Placement> choose_placement(std::span<const Placement> placements, ggml_type type,
                                          std::span<const int64_t, 4> ne, Use use);

// Whether ggml's kernels accept a weight of `type` for `use` at all. Asked first, because the CPU's
// answer to `supports_op` is yes for types on which its kernels then abort.
bool usable(ggml_type type, Use use);

const char* to_string(Use use);

}  // namespace cellar
