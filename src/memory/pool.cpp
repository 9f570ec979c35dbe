#include "memory/pool.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <cassert>
#include <limits>
#include <utility>

#include "memory/ggml_kv_type.h"

namespace cellar {
namespace {

// Far beyond any machine, and far enough below 2^63 that sums of a few such numbers cannot
// overflow.
constexpr uint64_t kMaxBytes = uint64_t{1} << 60;

// Where a tensor begins in host memory: on a line of the CPU's cache, and as ggml wants it.
constexpr uint64_t kHostAlignment = 64;

constexpr uint64_t align_up(uint64_t n, uint64_t alignment) {
    return (n + alignment - 1) / alignment * alignment;
}

// Bytes of one tensor of `n_rows` rows, or an error. `what` and `layer` are for the message.
Result<uint64_t> tensor_bytes(const PoolConfig::Layer& layer, uint32_t head_dim, KvType type,
                              const char* what, uint64_t n_rows) {
    if (layer.n_head_kv == 0 || head_dim == 0) {
        return fail(Code::kInvalidArgument,
                    fmt::format("layer {} has {} heads of {} {}s: both must be at least 1",
                                layer.index, layer.n_head_kv, head_dim, what));
    }
    const ggml_type stored = ggml_type_of(type);
    const auto block = static_cast<uint32_t>(ggml_blck_size(stored));
    if (head_dim % block != 0) {
        return fail(Code::kUnsupported,
                    fmt::format("{} {}s need heads whose width is a multiple of {}, but layer {} "
                                "has a width of {}",
                                name(type), what, block, layer.index, head_dim));
    }
    // Heads and rows have 32 bits each and a block at most 2^7 bytes: only the last product can
    // overflow 64 bits.
    const uint64_t row_blocks = uint64_t{layer.n_head_kv} * (head_dim / block);
    uint64_t bytes = 0;
    if (row_blocks > kMaxBytes / ggml_type_size(stored) ||
        __builtin_mul_overflow(row_blocks * ggml_type_size(stored), n_rows, &bytes) ||
        bytes > kMaxBytes) {
        return fail(Code::kInvalidArgument,
                    fmt::format("layer {}: {} rows of {} heads of {} {}s are beyond any memory",
                                layer.index, n_rows, layer.n_head_kv, head_dim, what));
    }
    return bytes;
}

// Bytes of `n_rows` rows of every tensor.
Result<uint64_t> rows_bytes(const PoolConfig& config, uint64_t n_rows) {
    uint64_t total = 0;
    for (const PoolConfig::Layer& layer : config.layers) {
        const auto k = tensor_bytes(layer, layer.head_dim_k, config.type_k, "key", n_rows);
        if (!k) return tl::unexpected(k.error());
        const auto v = tensor_bytes(layer, layer.head_dim_v, config.type_v, "value", n_rows);
        if (!v) return tl::unexpected(v.error());
        total += *k + *v;
        if (total > kMaxBytes) {
            return fail(Code::kInvalidArgument,
                        fmt::format("{} layers of {} cells are beyond any memory",
                                    config.layers.size(), config.n_cells));
        }
    }
    return total;
}

ggml_context_ptr context_for(size_t n_tensors) {
    return ggml_context_ptr(ggml_init(
        {.mem_size = n_tensors * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
}

ggml_tensor* new_rows(ggml_context* ctx, KvType type, uint64_t width, uint64_t n_rows) {
    return ggml_new_tensor_2d(ctx, ggml_type_of(type), static_cast<int64_t>(width),
                              static_cast<int64_t>(n_rows));
}

template <class Visit>
void for_each_tensor(ggml_context* ctx, const Visit& visit) {
    for (ggml_tensor* t = ggml_get_first_tensor(ctx); t; t = ggml_get_next_tensor(ctx, t))
        visit(t);
}

// Rows [first, +count) of a pool's tensor, as a tensor of their own.
ggml_tensor* rows_of(ggml_context* ctx, ggml_tensor* pool, uint64_t first, uint32_t count) {
    ggml_tensor* view =
        ggml_view_2d(ctx, pool, pool->ne[0], count, pool->nb[1], first * pool->nb[1]);
    ggml_backend_view_init(view);
    return view;
}

}  // namespace

Result<uint64_t> cell_bytes(const PoolConfig& config) {
    return rows_bytes(config, 1);
}

Result<Pool> Pool::create(const PoolConfig& config) {
    const uint64_t n_rows = uint64_t{config.n_cells} + 1;
    if (auto checked = rows_bytes(config, n_rows); !checked) return pass(std::move(checked));
    Pool pool(config.page_size);
    for (const PoolConfig::Layer& layer : config.layers) {
        const uint64_t heads = layer.n_head_kv;
        ggml_context* ctx = pool.part_in(layer.buffer_type, 2 * config.layers.size()).ctx.get();
        pool.tensors_.push_back(new_rows(ctx, config.type_k, heads * layer.head_dim_k, n_rows));
        ggml_format_name(pool.tensors_.back(), "pool_k_%u", layer.index);
        pool.tensors_.push_back(new_rows(ctx, config.type_v, heads * layer.head_dim_v, n_rows));
        ggml_format_name(pool.tensors_.back(), "pool_v_%u", layer.index);
    }
    for (Part& part : pool.parts_) {
        auto placed = part.buffer_type ? pool.place_on_device(part) : pool.place_on_host(part);
        if (!placed) return pass(std::move(placed));
    }
    return pool;
}

// The part of that memory, with room to describe `n_tensors` where it is new.
Pool::Part& Pool::part_in(ggml_backend_buffer_type_t buffer_type, size_t n_tensors) {
    for (Part& part : parts_) {
        if (part.buffer_type == buffer_type) return part;
    }
    parts_.push_back({buffer_type, std::nullopt, nullptr, context_for(n_tensors)});
    return parts_.back();
}

Result<void> Pool::place_on_host(Part& part) {
    uint64_t bytes = 0;
    for_each_tensor(part.ctx.get(), [&](ggml_tensor* tensor) {
        bytes += align_up(ggml_nbytes(tensor), kHostAlignment);
    });
    auto mapping = HostMapping::create(bytes);
    if (!mapping) return pass(std::move(mapping));
    part.mapping.emplace(std::move(*mapping));
    part.buffer.reset(ggml_backend_cpu_buffer_from_ptr(part.mapping->data(), bytes));
    assert(kHostAlignment % ggml_backend_buffer_get_alignment(part.buffer.get()) == 0);
    auto* at = static_cast<char*>(part.mapping->data());
    for_each_tensor(part.ctx.get(), [&](ggml_tensor* tensor) {
        ggml_backend_tensor_alloc(part.buffer.get(), tensor, at);
        at += align_up(ggml_nbytes(tensor), kHostAlignment);
    });
    bytes_ += bytes;
    return {};
}

Result<void> Pool::place_on_device(Part& part) {
    part.buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(part.ctx.get(), part.buffer_type));
    if (!part.buffer) {
        uint64_t bytes = 0;
        for_each_tensor(part.ctx.get(),
                        [&](const ggml_tensor* tensor) { bytes += ggml_nbytes(tensor); });
        return fail(Code::kBackend, fmt::format("{} cannot allocate {} bytes for keys and values",
                                                ggml_backend_buft_name(part.buffer_type), bytes));
    }
    bytes_ += ggml_backend_buffer_get_size(part.buffer.get());
    ggml_backend_buffer_clear(part.buffer.get(), 0);
    return {};
}

void Pool::copy(std::span<const CellCopy> copies) {
    if (copies.empty()) return;
    for (const CellCopy& copy : copies) {
        const ggml_context_ptr ctx = context_for(2 * tensors_.size());
        const uint64_t from = uint64_t{value(copy.from)} * page_size_ + copy.from_first;
        const uint64_t to = uint64_t{value(copy.to)} * page_size_ + copy.to_first;
        for (ggml_tensor* tensor : tensors_) {
            // On host memory a memcpy; elsewhere the backend copies without leaving its device.
            ggml_backend_tensor_copy(rows_of(ctx.get(), tensor, from, copy.count),
                                     rows_of(ctx.get(), tensor, to, copy.count));
        }
    }
}

Result<void> Pool::commit() {
    for (Part& part : parts_) {
        if (!part.mapping) continue;
        if (auto committed = part.mapping->commit(); !committed) return committed;
    }
    return {};
}

void Pool::clear() {
    for (Part& part : parts_) {
        if (part.mapping) {
            part.mapping->zero();
        } else {
            ggml_backend_buffer_clear(part.buffer.get(), 0);
        }
    }
}

}  // namespace cellar
