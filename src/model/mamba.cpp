#include "model/mamba.h"

#include <fmt/format.h>
#include <ggml.h>

#include <limits>
#include <string>
#include <utility>

#include "gguf/gguf_file.h"
#include "model/loading.h"
#include "model/metadata.h"
#include "model/step_graph.h"

namespace cellar {

namespace {

// Far beyond any model (2.8B: 64 layers, 2560 wide, 5120 channels of 16 numbers), and small enough
// for their products.
constexpr uint32_t kMaxWidth = 1 << 20;
constexpr uint32_t kMaxState = 4096;
constexpr uint32_t kMaxConv = 256;
constexpr uint32_t kMaxVocab = 1 << 24;
constexpr uint32_t kMaxContext = std::numeric_limits<int32_t>::max();

// Rows [first, first + n) of x [.., n_tokens].
ggml_tensor* rows_of(ggml_context* ctx, ggml_tensor* x, int64_t first, int64_t n) {
    return ggml_view_2d(ctx, x, n, x->ne[1], x->nb[1], x->nb[0] * static_cast<size_t>(first));
}

}  // namespace

Result<std::unique_ptr<Model>> MambaModel::load(const GgufFile& file, const LoadOptions& options) {
    auto config = read_config(file);
    if (!config) {
        return pass(std::move(config));
    }
    std::unique_ptr<MambaModel> model(new MambaModel(file, std::move(*config)));
    if (auto loaded = model->load_weights(file, options); !loaded) {
        return pass(std::move(loaded));
    }
    return model;
}

Result<MambaModel::Config> MambaModel::read_config(const GgufFile& file) {
    Config config;
    const struct {
        const char* key;
        uint32_t low, high;
        uint32_t& to;
    } counts[] = {
        {"mamba.block_count", 1, kMaxLayers, config.outer.n_layer},
        {"mamba.embedding_length", 1, kMaxWidth, config.outer.n_embd},
        {"mamba.context_length", 1, kMaxContext, config.outer.n_ctx_train},
        {"mamba.ssm.conv_kernel", 2, kMaxConv, config.d_conv},
        {"mamba.ssm.inner_size", 1, kMaxWidth, config.d_inner},
        {"mamba.ssm.state_size", 2, kMaxState, config.d_state},
        {"mamba.ssm.time_step_rank", 1, kMaxWidth, config.dt_rank},
    };
    for (const auto& count : counts) {
        auto value = count_in(file, count.key, count.low, count.high);
        if (!value) return pass(std::move(value));
        count.to = *value;
    }
    constexpr const char* kEps = "mamba.attention.layer_norm_rms_epsilon";
    if (!file.has(kEps)) {
        return fail(Code::kBadFile, fmt::format("{}: key '{}' is missing", file.path(), kEps));
    }
    auto eps = real_in(file, kEps, 0, 1, 0);
    if (!eps) return pass(std::move(eps));
    auto norms = file.find_boolean("mamba.ssm.dt_b_c_rms");
    if (!norms) return pass(std::move(norms));
    const TensorInfo* table = file.find_tensor("token_embd.weight");
    if (table == nullptr || table->ne[1] < 1 || table->ne[1] > kMaxVocab) {
        return fail(Code::kBadFile,
                    fmt::format("{}: tensor 'token_embd.weight' is missing or has more than {} "
                                "rows",
                                file.path(), kMaxVocab));
    }
    config.outer.norm_eps = *eps;
    config.outer.n_vocab = static_cast<uint32_t>(table->ne[1]);
    config.norms = norms->value_or(false);
    return config;
}

MambaModel::MambaModel(const GgufFile& file, Config config) : config_(std::move(config)) {
    info_ = info_of(file, config_.outer, "mamba");
    info_.kinds = {GroupKind::recurrent()};
    info_.layers.assign(config_.outer.n_layer, {0, 1, (config_.d_conv - 1) * config_.d_inner,
                                                config_.d_state * config_.d_inner});
}

Result<void> MambaModel::load_weights(const GgufFile& file, const LoadOptions& options) {
    WeightsLoader loader(file, weights_options(options));
    outer_ = ask_outer(loader, config_.outer);
    for (uint32_t i = 0; i < config_.outer.n_layer; i++) {
        layers_.push_back(ask_layer(loader, i));
    }
    return load_asked(std::move(loader), options, memory_, info_);
}

MambaModel::Layer MambaModel::ask_layer(WeightsLoader& loader, uint32_t index) const {
    const std::string prefix = fmt::format("blk.{}.", index);
    const int64_t n_embd = config_.outer.n_embd;
    const int64_t d_inner = config_.d_inner;
    const int64_t d_state = config_.d_state;
    const int64_t dt_rank = config_.dt_rank;
    Layer layer;
    layer.norm = loader.require(prefix + "attn_norm.weight", {n_embd}, Use::kMul);
    layer.in = ask_linear(loader, prefix + "ssm_in", {n_embd, 2 * d_inner});
    // Plain f32 tensors, as the uses of small vectors are.
    layer.conv = loader.require(prefix + "ssm_conv1d.weight", {config_.d_conv, d_inner}, Use::kMul);
    layer.conv_bias = loader.require(prefix + "ssm_conv1d.bias", {d_inner}, Use::kAdd);
    layer.x = ask_linear(loader, prefix + "ssm_x", {d_inner, dt_rank + 2 * d_state});
    layer.dt = ask_linear(loader, prefix + "ssm_dt", {dt_rank, d_inner});
    layer.a = loader.require(prefix + "ssm_a", {d_state, d_inner}, Use::kMul);
    layer.d = loader.require(prefix + "ssm_d", {d_inner}, Use::kMul);
    layer.out = ask_linear(loader, prefix + "ssm_out", {d_inner, n_embd});
    return layer;
}

ggml_tensor* MambaModel::build(StepGraph& graph) const {
    ggml_context* ctx = graph.ctx();
    const int64_t d_inner = config_.d_inner;
    const float eps = config_.outer.norm_eps;
    ggml_tensor* x = graph.embed(outer_.token_embd);
    for (uint32_t index = 0; index < config_.outer.n_layer; index++) {
        const Layer& layer = layers_[index];
        ggml_tensor* both = graph.linear(layer.in, graph.rms_norm(x, layer.norm, eps));
        ggml_tensor* convolved = graph.recurrence(index).convolve(
            index, Recurrence::Part::kFirst, rows_of(ctx, both, 0, d_inner), layer.conv);
        convolved = ggml_silu(ctx, ggml_add(ctx, convolved, layer.conv_bias));
        ggml_tensor* y = scan(graph, index, convolved);
        ggml_tensor* gate = ggml_cont(ctx, rows_of(ctx, both, d_inner, d_inner));
        y = ggml_swiglu_split(ctx, gate, y);
        if (index + 1 == config_.outer.n_layer && !graph.keep_outputs(y, x)) {
            return nullptr;
        }
        x = ggml_add(ctx, graph.linear(layer.out, y), x);
    }
    return graph.linear(outer_.output, graph.rms_norm(x, outer_.output_norm, eps));
}

ggml_tensor* MambaModel::scan(StepGraph& graph, uint32_t index, ggml_tensor* x) const {
    ggml_context* ctx = graph.ctx();
    const Layer& layer = layers_[index];
    const int64_t d_state = config_.d_state, dt_rank = config_.dt_rank;
    ggml_tensor* made = graph.linear(layer.x, x);
    const auto part = [&](int64_t first, int64_t n) {
        ggml_tensor* rows = rows_of(ctx, made, first, n);
        return config_.norms ? ggml_rms_norm(ctx, rows, config_.outer.norm_eps) : rows;
    };
    ggml_tensor* dt = graph.linear(layer.dt, ggml_cont(ctx, part(0, dt_rank)));
    ggml_tensor* y = graph.recurrence(index).scan(
        index, Recurrence::Part::kSecond,
        {x, dt, layer.a, part(dt_rank, d_state), part(dt_rank + d_state, d_state)});
    return ggml_add(ctx, y, ggml_mul(ctx, x, layer.d));
}

}  // namespace cellar
