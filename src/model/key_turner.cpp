#include "model/key_turner.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <map>

namespace cellar {

namespace {

constexpr uint32_t kMostCells = 4096;  // in one graph: bounds its f32 rows
constexpr size_t kTensorsPerLayer = 8;
constexpr size_t kTensorsBesides = 8;

}  // namespace

size_t moves_at_once(std::span<const CellMove> moves) {
    std::map<PageId, uint32_t> written;  // up to which cell: moves fill a page from its start
    uint32_t cells = 0;
    size_t n = 0;
    for (; n < moves.size(); n++) {
        const CellCopy& copy = moves[n].copy;
        const bool reads_written = written.contains(copy.from);
        uint32_t& end = written[copy.to];
        if (moves[n].group != moves[0].group || copy.to_first < end || reads_written ||
            (n > 0 && cells + copy.count > kMostCells)) {
            break;
        }
        end = copy.to_first + uint32_t{copy.count};
        cells += copy.count;
    }
    return n;
}

TurnGraph::TurnGraph(const Model& model, const Memory& memory, std::span<const CellMove> moves) {
    list_cells(memory, moves);
    const std::vector<LayerKv>& layers = memory.config().layers;
    const size_t n_tensors = kTensorsBesides + kTensorsPerLayer * layers.size();
    ctx_.reset(ggml_init({.mem_size = n_tensors * ggml_tensor_overhead() +
                                      ggml_graph_overhead_custom(n_tensors, false),
                          .mem_buffer = nullptr,
                          .no_alloc = true}));
    graph_ = ggml_new_graph_custom(ctx_.get(), n_tensors, false);
    const auto input = [&](ggml_type type) {
        ggml_tensor* tensor =
            ggml_new_tensor_1d(ctx_.get(), type, static_cast<int64_t>(rows_.size()));
        ggml_set_input(tensor);
        return tensor;
    };
    rows_in_ = input(GGML_TYPE_I32);
    rows_out_ = input(GGML_TYPE_I64);
    deltas_in_ = input(GGML_TYPE_I32);
    for (uint32_t i = 0; i < layers.size() && !rows_.empty(); i++) {
        const auto rope = model.rope(i, memory.config().n_cells);
        if (memory.keeps(i) && layers[i].group == moves[0].group && rope) {
            turn_layer(memory.k(i), layers[i].n_head_kv, *rope);
        }
    }
}

bool TurnGraph::empty() const {
    return ggml_graph_n_nodes(graph_) == 0;
}

void TurnGraph::list_cells(const Memory& memory, std::span<const CellMove> moves) {
    for (const CellMove& move : moves) {
        const PagePool& pool = memory.cells().pool(move.group);
        const CellCopy& copy = move.copy;
        for (uint32_t i = 0; move.turns && i < copy.count; i++) {
            const Pos from = pool.pos(copy.from, copy.from_first + i);
            const Pos to = pool.pos(copy.to, copy.to_first + i);
            rows_.push_back(
                static_cast<int32_t>(value(copy.to) * pool.page_size() + copy.to_first + i));
            deltas_.push_back(to - from);
        }
    }
}

void TurnGraph::turn_layer(ggml_tensor* pool, uint32_t n_head_kv, const Rope& rope) {
    ggml_context* ctx = ctx_.get();
    ggml_tensor* rows = ggml_get_rows(ctx, pool, rows_in_);
    rows = turn_rows(ctx, rows, n_head_kv, deltas_in_, rope);
    ggml_build_forward_expand(graph_, ggml_set_rows(ctx, pool, rows, rows_out_));
}

void TurnGraph::set_inputs() const {
    const std::vector<int64_t> rows(rows_.begin(), rows_.end());
    ggml_backend_tensor_set(rows_in_, rows_.data(), 0, ggml_nbytes(rows_in_));
    ggml_backend_tensor_set(rows_out_, rows.data(), 0, ggml_nbytes(rows_out_));
    ggml_backend_tensor_set(deltas_in_, deltas_.data(), 0, ggml_nbytes(deltas_in_));
}

}  // namespace cellar
