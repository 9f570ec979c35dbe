// Attention over a memory's pools, side by side in one process: our kernel, ggml's flash attention
// over the whole pool under a mask (what a unified cache does), and a bound: the bytes that must be
// read at this machine's bandwidth or the operations at its peak, whichever takes longer.
//   build/release/bin/attention_bench [--threads N] [--repeat N] [--case TEXT] [--json]
// Heads are SmolLM2-135M's. Layers are walked in turns through at least four times the last-level
// cache of keys and values, so no layer's are in a cache when it comes again.

#include <fmt/format.h>
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "attention/workspace.h"
#include "machine.h"
#include "memory/ggml_compat.h"
#include "memory/memory.h"

namespace cellar::bench {
namespace {

constexpr LayerKv kLayer{0, 3, 64, 64};
constexpr uint32_t kHeads = 9;
constexpr int kLayersAtOnce = 8;  // in one graph
constexpr float kScale = 0.125f;

struct Case {
    const char* name;
    int n_seqs;
    bool shared;      // one prompt for all
    uint32_t depth;   // cells of each sequence before
    uint32_t tokens;  // of each sequence, that attend
};

constexpr Case kCases[] = {
    {"decode, 1 sequence of 4096", 1, false, 4096, 1},
    {"decode, 32 sequences on a shared 4096", 32, true, 4096, 1},
    {"decode, 16 sequences on a shared 1024", 16, true, 1024, 1},
    {"decode, 16 private sequences of 1024", 16, false, 1024, 1},
    {"prefill 512 at depth 0", 1, false, 0, 512},
    {"prefill 512 at depth 4096", 1, false, 4096, 512},
};

struct Options {
    int n_threads = 2;
    int repeat = 5;
    std::string only;
    bool json = false;
};

void must(bool ok) {
    if (!ok) std::abort();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// One graph over some layers, by one path; inputs are random and stay.
struct Built {
    ggml_context_ptr ctx;
    ggml_gallocr_ptr allocator;
    std::unique_ptr<Attention> attention;
    ggml_cgraph* graph = nullptr;
};

class Rig {
public:
    Rig(const Case& c, KvType type, const Options& options)
        : case_(c), options_(options), workspace_(static_cast<uint32_t>(options.n_threads)) {
        const uint32_t each = (c.depth + c.tokens + 31) / 32 * 32;
        const uint32_t n = static_cast<uint32_t>(c.n_seqs);
        MemoryConfig config;
        config.type_k = config.type_v = type;
        config.n_cells = c.shared ? (c.depth + 31) / 32 * 32 + n * 32 : n * each;
        config.n_cells = (config.n_cells + 255) / 256 * 256;
        config.layers.assign(kLayersAtOnce, kLayer);
        auto probe = Memory::create(config);
        must(probe.has_value());
        const size_t needed = 4 * last_level_cache();
        while ((*probe)->bytes() / kLayersAtOnce * config.layers.size() < needed)
            config.layers.resize(config.layers.size() + kLayersAtOnce, kLayer);
        probe->reset();
        auto made = Memory::create(config);
        must(made.has_value());
        memory_ = std::move(*made);
        backend_.reset(ggml_backend_cpu_init());
        ggml_backend_cpu_set_n_threads(backend_.get(), options.n_threads);
        fill_pools();
        fill_sequences();
    }

    // Seconds a layer, by each way: medians of alternated runs over ever other layers.
    std::pair<double, double> run() {
        Batch batch;
        for (int seq = 0; seq < case_.n_seqs; seq++) {
            for (uint32_t i = 0; i < case_.tokens; i++)
                batch.add(0, SeqId{seq});
        }
        auto plan = memory_->prepare(batch, {.max_ubatch = 4096});
        must(plan && plan->size() == 1 && memory_->apply_moves(*plan, 0));
        const UbatchPlan& ubatch = plan->ubatch(0);
        const AttentionPlan cascade = plan_attention(*memory_, ubatch, 0, {});
        attended = attended_cells(cascade);
        read = read_cells(cascade);
        std::vector<double> ours, masked;
        const auto n_layers = static_cast<uint32_t>(memory_->config().layers.size());
        uint32_t layer = 0;
        for (int i = -1; i < options_.repeat; i++) {  // the first warms up
            const double a = seconds(kernel(ubatch, cascade, layer));
            layer = (layer + kLayersAtOnce) % n_layers;
            const double b = seconds(whole_pool(ubatch, layer));
            layer = (layer + kLayersAtOnce) % n_layers;
            if (i < 0) continue;
            ours.push_back(a / kLayersAtOnce);
            masked.push_back(b / kLayersAtOnce);
        }
        return {median(ours), median(masked)};
    }

    double row_bytes() const {
        return static_cast<double>(memory_->k(0)->nb[1] + memory_->v(0)->nb[1]);
    }

    uint64_t attended = 0;  // in one layer
    uint64_t read = 0;

private:
    void fill_pools() {
        std::normal_distribution<float> normal;
        std::vector<float> row(kLayer.n_head_kv * kLayer.head_dim_k);
        for (uint32_t layer = 0; layer < memory_->config().layers.size(); layer++) {
            for (ggml_tensor* pool : {memory_->k(layer), memory_->v(layer)}) {
                std::vector<uint8_t> bytes(pool->nb[1]);
                for (int64_t r = 0; r + 1 < pool->ne[1]; r++) {
                    // One row in a hundred is new: random numbers would take most of the time.
                    if (r % 100 == 0) {
                        for (float& x : row)
                            x = normal(random_);
                        ggml_quantize_chunk(pool->type, row.data(), bytes.data(), 0, 1, pool->ne[0],
                                            nullptr);
                    }
                    ggml_backend_tensor_set(pool, bytes.data(),
                                            static_cast<size_t>(r) * pool->nb[1], bytes.size());
                }
            }
        }
    }

    void fill_sequences() {
        for (int seq = 0; seq < (case_.shared ? 1 : case_.n_seqs) && case_.depth > 0; seq++) {
            Batch batch;
            for (uint32_t i = 0; i < case_.depth; i++)
                batch.add(0, SeqId{seq});
            auto plan = memory_->prepare(batch, {.max_ubatch = case_.depth});
            must(plan && memory_->commit(*plan, 0));
        }
        for (int seq = 1; case_.shared && seq < case_.n_seqs; seq++)
            must(memory_->seq_cp(SeqId{0}, SeqId{seq}, -1, -1).has_value());
    }

    Built begin() const {
        Built built;
        constexpr size_t kTensors = 64 * kLayersAtOnce;
        built.ctx.reset(ggml_init({.mem_size = kTensors * ggml_tensor_overhead() +
                                               ggml_graph_overhead_custom(kTensors, false),
                                   .mem_buffer = nullptr,
                                   .no_alloc = true}));
        built.graph = ggml_new_graph_custom(built.ctx.get(), kTensors, false);
        return built;
    }

    static ggml_tensor* input(const Built& built, ggml_type type, int64_t a, int64_t b, int64_t c) {
        ggml_tensor* tensor = ggml_new_tensor_3d(built.ctx.get(), type, a, b, c);
        ggml_set_input(tensor);
        return tensor;
    }

    void allocate(Built& built) {
        built.allocator.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
        must(ggml_gallocr_alloc_graph(built.allocator.get(), built.graph));
        std::normal_distribution<float> normal;
        for (ggml_tensor* t = ggml_get_first_tensor(built.ctx.get()); t != nullptr;
             t = ggml_get_next_tensor(built.ctx.get(), t)) {
            if ((t->flags & GGML_TENSOR_FLAG_INPUT) == 0 || t->type != GGML_TYPE_F32) continue;
            std::vector<float> values(static_cast<size_t>(ggml_nelements(t)));
            for (float& x : values)
                x = normal(random_);
            ggml_backend_tensor_set(t, values.data(), 0, ggml_nbytes(t));
        }
    }

    Built kernel(const UbatchPlan& ubatch, const AttentionPlan& plan, uint32_t first) {
        Built built = begin();
        const auto n = static_cast<int64_t>(ubatch.items.size());
        built.attention =
            Attention::create(built.ctx.get(), *memory_, 0, shape_of(plan), {}, &workspace_);
        ggml_tensor* q = input(built, GGML_TYPE_F32, kLayer.head_dim_k, kHeads, n);
        ggml_tensor* k = input(built, GGML_TYPE_F32, kLayer.head_dim_k, kLayer.n_head_kv, n);
        ggml_tensor* v = input(built, GGML_TYPE_F32, kLayer.head_dim_v, kLayer.n_head_kv, n);
        for (uint32_t i = 0; i < kLayersAtOnce; i++) {
            ggml_tensor* out =
                built.attention->attend(built.graph, first + i, q, k, v, {.scale = kScale});
            ggml_set_output(out);
            ggml_build_forward_expand(built.graph, out);
        }
        allocate(built);
        built.attention->set_inputs(plan, ubatch);
        return built;
    }

    // As a unified cache attends: every query over every cell, under a mask. Its queries are given
    // as they are, so what it would cost to write K and V is not counted.
    Built whole_pool(const UbatchPlan& ubatch, uint32_t first) {
        Built built = begin();
        const auto n = static_cast<int64_t>(ubatch.items.size());
        const int64_t n_cells = memory_->k(0)->ne[1] - 1;
        ggml_tensor* q = input(built, GGML_TYPE_F32, kLayer.head_dim_k, n, kHeads);
        ggml_tensor* mask = input(built, GGML_TYPE_F16, n_cells, n, 1);
        for (uint32_t i = 0; i < kLayersAtOnce; i++) {
            const auto heads = [&](ggml_tensor* pool, int64_t width) {
                return ggml_view_3d(built.ctx.get(), pool, width, n_cells, kLayer.n_head_kv,
                                    pool->nb[1], ggml_row_size(pool->type, width), 0);
            };
            ggml_tensor* out = ggml_flash_attn_ext(
                built.ctx.get(), q, heads(memory_->k(first + i), kLayer.head_dim_k),
                heads(memory_->v(first + i), kLayer.head_dim_v), mask, kScale, 0, 0);
            ggml_set_output(out);
            ggml_build_forward_expand(built.graph, out);
        }
        allocate(built);
        set_mask(mask, ubatch);
        return built;
    }

    // Which cells each query sees.
    void set_mask(ggml_tensor* mask, const UbatchPlan& ubatch) const {
        auto* rows = static_cast<ggml_fp16_t*>(mask->data);
        const auto n_cells = static_cast<size_t>(mask->ne[0]);
        std::fill_n(rows, ggml_nelements(mask), ggml_fp32_to_fp16(-INFINITY));
        const ggml_fp16_t seen = ggml_fp32_to_fp16(0);
        const Cells& cells = memory_->cells();
        for (const UbatchRun& run : ubatch.runs) {
            for (uint32_t i = 0; i < run.count; i++) {
                ggml_fp16_t* row = rows + (run.first + i) * n_cells;
                for (const Span& span : cells.spans(run.seqs[0], 0))
                    std::fill_n(row + value(span.page) * cells.page_size() + span.first, span.count,
                                seen);
                for (uint32_t own = 0; own <= i; own++)
                    row[ubatch.groups[0].cells[run.first + own]] = seen;
            }
        }
    }

    double seconds(const Built& built) const {
        const auto start = std::chrono::steady_clock::now();
        must(ggml_backend_graph_compute(backend_.get(), built.graph) == GGML_STATUS_SUCCESS);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }

    const Case case_;
    const Options& options_;
    AttentionWorkspace workspace_;
    std::unique_ptr<Memory> memory_;
    ggml_backend_ptr backend_;
    std::mt19937 random_{1};
};

void report(const Case& c, KvType type, const Options& options, double bandwidth, double peak) {
    Rig rig(c, type, options);
    const auto [ours, masked] = rig.run();
    const double bytes = static_cast<double>(rig.read) * rig.row_bytes();
    const double flops =
        static_cast<double>(rig.attended) * kHeads * 2 * (kLayer.head_dim_k + kLayer.head_dim_v);
    const double bound = std::max(bytes / bandwidth, flops / peak);
    if (options.json) {
        fmt::print(
            "{{\"case\":\"{}\",\"type\":\"{}\",\"kernel_s\":{:.4g},\"masked_s\":{:.4g},"
            "\"bound_s\":{:.4g}}}\n",
            c.name, name(type), ours, masked, bound);
    } else {
        fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.2f} |\n", c.name, name(type),
                   ours * 1e6, masked * 1e6, bound * 1e6, masked / ours, bound / ours);
    }
    std::fflush(stdout);
}

int run(const Options& options) {
    const double bandwidth = read_bandwidth(2 * last_level_cache(), options.n_threads);
    const double peak = peak_flops(options.n_threads);
    if (!options.json) {
        fmt::print("{} threads; memory reads at {:.1f} GB/s, peak {:.0f} GFLOP/s\n\n",
                   options.n_threads, bandwidth / 1e9, peak / 1e9);
        fmt::print(
            "| one layer, microseconds | K/V | kernel | whole pool | bound | whole pool / "
            "kernel | bound / kernel |\n|---|---|---|---|---|---|---|\n");
    }
    for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
        for (const Case& c : kCases) {
            if (std::string(c.name).find(options.only) == std::string::npos) continue;
            report(c, type, options, bandwidth, peak);
        }
    }
    return 0;
}

}  // namespace
}  // namespace cellar::bench

int main(int argc, char** argv) {
    cellar::bench::Options options;
    CLI::App app("Attention: our kernel, ggml's over the whole pool, and a bound.");
    app.add_option("--threads", options.n_threads, "threads that compute")
        ->check(CLI::Range(1, 512));
    app.add_option("--repeat", options.repeat, "runs of each; the median counts")
        ->check(CLI::Range(1, 1000));
    app.add_option("--case", options.only, "only cases with this text in their names");
    app.add_flag("--json", options.json, "a JSON object for each case");
    CLI11_PARSE(app, argc, argv);
    return cellar::bench::run(options);
}
