#include "model/recurrence.h"

#include <ggml-backend.h>

#include <numeric>
#include <vector>

#include "memory/ggml_compat.h"

namespace cellar {

namespace {

// Items [first, first + count) of each run: x [n, n_tokens] → [n, 1, count, n_runs].
ggml_tensor* items_of(ggml_context* ctx, ggml_tensor* x, uint32_t n_items, uint32_t first,
                      uint32_t count) {
    const int64_t n_runs = x->ne[1] / n_items;
    return ggml_view_4d(ctx, x, x->ne[0], 1, count, n_runs,
                        x->nb[0] * static_cast<size_t>(x->ne[0]), x->nb[1], x->nb[1] * n_items,
                        x->nb[1] * first);
}

template <class T>
void set(ggml_tensor* tensor, const std::vector<T>& values) {
    ggml_backend_tensor_set(tensor, values.data(), 0, values.size() * sizeof(T));
}

}  // namespace

Recurrence::Recurrence(ggml_context* ctx, ggml_cgraph* graph, const Memory& memory, uint32_t group,
                       uint32_t n_tokens, RunShape shape)
    : ctx_(ctx),
      graph_(graph),
      memory_(memory),
      group_(group),
      shape_(shape),
      n_items_(n_tokens / shape.n_runs) {
}

ggml_tensor* Recurrence::pool(uint32_t layer, Part part) const {
    return part == Part::kFirst ? memory_.k(layer) : memory_.v(layer);
}

ggml_tensor* Recurrence::input(ggml_tensor*& tensor, ggml_type type, uint32_t n, const char* name) {
    if (!tensor) {
        tensor = ggml_new_tensor_1d(ctx_, type, n);
        ggml_set_input(tensor);
        ggml_format_name(tensor, "%s_%u", name, group_);
    }
    return tensor;
}

ggml_tensor* Recurrence::state(uint32_t layer, Part part) {
    return ggml_get_rows(ctx_, pool(layer, part),
                         input(sources_, GGML_TYPE_I32, n_runs(), "sources"));
}

void Recurrence::keep(uint32_t layer, Part part, uint32_t nth, ggml_tensor* states) {
    ggml_tensor* rows = input(rows_, GGML_TYPE_I64, n_runs() * n_states(), "rows");
    ggml_tensor* own = ggml_view_1d(ctx_, rows, n_runs(), rows->nb[0] * n_runs() * nth);
    ggml_build_forward_expand(graph_, ggml_set_rows(ctx_, pool(layer, part), states, own));
}

// The states are windows of what is convolved: all columns that an item after them would see but
// its own.
ggml_tensor* Recurrence::convolve(uint32_t layer, Part part, ggml_tensor* x, ggml_tensor* kernel) {
    const int64_t n = x->ne[0];
    const int64_t before = kernel->ne[0] - 1;
    ggml_tensor* old = ggml_reshape_3d(ctx_, state(layer, part), before, n, n_runs());
    ggml_tensor* runs =
        ggml_view_3d(ctx_, x, n, n_items_, n_runs(), x->nb[1], x->nb[1] * n_items_, 0);
    ggml_tensor* columns = ggml_concat(ctx_, old, ggml_transpose(ctx_, runs), 0);
    for (uint32_t nth = 0; nth < n_states(); nth++) {
        const size_t first = n_items_ - n_states() + nth + 1;
        ggml_tensor* window = ggml_view_3d(ctx_, columns, before, n, n_runs(), columns->nb[1],
                                           columns->nb[2], columns->nb[0] * first);
        keep(layer, part, nth, ggml_cont_2d(ctx_, window, before * n, n_runs()));
    }
    return ggml_reshape_2d(ctx_, ggml_ssm_conv(ctx_, columns, kernel), n, x->ne[1]);
}

// [n * count * n_runs] of y, and behind it the states, [d_state * n, n_runs].
ggml_tensor* Recurrence::scan_piece(const Scan& in, ggml_tensor* state, uint32_t first,
                                    uint32_t count) {
    const int64_t d_state = in.a->ne[0], n = in.a->ne[1];
    const auto part = [&](ggml_tensor* x) { return items_of(ctx_, x, n_items_, first, count); };
    ggml_tensor* x = ggml_view_4d(ctx_, in.x, 1, n, count, n_runs(), in.x->nb[0], in.x->nb[1],
                                  in.x->nb[1] * n_items_, in.x->nb[1] * first);
    ggml_tensor* dt = ggml_cont_3d(ctx_, part(in.dt), n, count, n_runs());
    return ssm_scan(ctx_, ggml_reshape_4d(ctx_, state, d_state, 1, n, n_runs()), x, dt, in.a,
                    part(in.b), part(in.c), input(numbers_, GGML_TYPE_I32, n_runs(), "numbers"));
}

// In pieces, of which each but the first is one item, so that each ends with a state to keep.
ggml_tensor* Recurrence::scan(uint32_t layer, Part part, const Scan& in) {
    const int64_t n = in.x->ne[0], width = in.a->ne[0] * n;
    ggml_tensor* state = this->state(layer, part);
    ggml_tensor* y = nullptr;
    for (uint32_t nth = 0, first = 0; nth < n_states(); nth++) {
        const uint32_t count = nth == 0 ? n_items_ - n_states() + 1 : 1;
        ggml_tensor* scanned = scan_piece(in, state, first, count);
        const size_t run_bytes = scanned->nb[0] * static_cast<size_t>(n) * count;
        ggml_tensor* piece = ggml_view_3d(ctx_, scanned, n, count, n_runs(),
                                          scanned->nb[0] * static_cast<size_t>(n), run_bytes, 0);
        state = ggml_view_2d(ctx_, scanned, width, n_runs(),
                             scanned->nb[0] * static_cast<size_t>(width), run_bytes * n_runs());
        keep(layer, part, nth, state);
        y = y ? ggml_concat(ctx_, y, piece, 1) : piece;
        first += count;
    }
    return ggml_reshape_2d(ctx_, y, n, in.x->ne[1]);
}

void Recurrence::set_inputs(const UbatchGroup& plan) const {
    if (sources_) {
        set(sources_, std::vector<int32_t>(plan.sources.begin(), plan.sources.end()));
    }
    if (rows_) {
        std::vector<int64_t> rows(plan.cells.size());
        for (size_t i = 0; i < rows.size(); i++) {
            rows[i % n_states() * n_runs() + i / n_states()] = plan.cells[i];
        }
        set(rows_, rows);
    }
    if (numbers_) {
        std::vector<int32_t> numbers(n_runs());
        std::iota(numbers.begin(), numbers.end(), 0);
        set(numbers_, numbers);
    }
}

}  // namespace cellar
