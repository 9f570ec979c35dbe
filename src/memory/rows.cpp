#include "memory/rows.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <cassert>
#include <cstring>

#include "memory/ggml_kv_type.h"

namespace cellar {
namespace {

ggml_tensor* tensor_of(const Memory& memory, uint32_t layer, Side side) {
    return side == Side::kKeys ? memory.k(layer) : memory.v(layer);
}

}  // namespace

KvType row_type(const Memory& memory, uint32_t group, Side side) {
    const MemoryConfig& config = memory.config();
    const bool keys = side == Side::kKeys;
    if (memory.cells().kind(group).is_recurrent())
        return keys ? config.type_state_k : config.type_state_v;
    return keys ? config.type_k : config.type_v;
}

uint64_t row_values(const Memory& memory, uint32_t layer, Side side) {
    if (!memory.keeps(layer)) return 0;
    return static_cast<uint64_t>(tensor_of(memory, layer, side)->ne[0]);
}

size_t row_bytes(const Memory& memory, uint32_t layer, Side side) {
    return memory.keeps(layer) ? tensor_of(memory, layer, side)->nb[1] : 0;
}

size_t bytes_of_row(KvType type, uint64_t n_values) {
    const ggml_type stored = ggml_type_of(type);
    const auto block = static_cast<uint64_t>(ggml_blck_size(stored));
    return n_values % block == 0 ? n_values / block * ggml_type_size(stored) : 0;
}

void read_rows(const Memory& memory, uint32_t layer, Side side, std::span<const PoolRows> runs,
               std::span<std::byte> out) {
    assert(memory.keeps(layer));
    const ggml_tensor* tensor = tensor_of(memory, layer, side);
    const size_t row = tensor->nb[1];
    size_t at = 0;
    for (const PoolRows& run : runs) {
        ggml_backend_tensor_get(tensor, out.data() + at, run.row * row, run.count * row);
        at += run.count * row;
    }
    assert(at == out.size());
}

void write_rows(Memory& memory, const Loading& loading, uint32_t layer, Side side, uint32_t first,
                std::span<const std::byte> bytes) {
    assert(memory.keeps(layer));
    ggml_tensor* tensor = tensor_of(memory, layer, side);
    const size_t row = tensor->nb[1];
    const uint32_t group = memory.config().layers[layer].group;
    for (const Loading::Rows& r :
         loading.rows(group, first, static_cast<uint32_t>(bytes.size() / row)))
        ggml_backend_tensor_set(tensor, bytes.data() + (r.first - first) * row, r.row * row,
                                r.count * row);
}

void convert_rows(KvType from, KvType to, uint64_t n_values, std::span<const std::byte> in,
                  std::span<std::byte> out) {
    const ggml_type source = ggml_type_of(from), target = ggml_type_of(to);
    const auto width = static_cast<int64_t>(n_values);
    const size_t in_row = bytes_of_row(from, n_values), out_row = bytes_of_row(to, n_values);
    assert(in_row > 0 && out_row > 0 && in.size() / in_row == out.size() / out_row);
    if (in_row == 0) return;
    std::vector<float> values(n_values);
    for (size_t i = 0; i < in.size() / in_row; i++) {
        if (source == GGML_TYPE_F32) {
            std::memcpy(values.data(), in.data() + i * in_row, in_row);
        } else {
            ggml_get_type_traits(source)->to_float(in.data() + i * in_row, values.data(), width);
        }
        if (target == GGML_TYPE_F32) {
            std::memcpy(out.data() + i * out_row, values.data(), out_row);
        } else {
            ggml_quantize_chunk(target, values.data(), out.data() + i * out_row, 0, 1, width,
                                nullptr);
        }
    }
}

}  // namespace cellar
