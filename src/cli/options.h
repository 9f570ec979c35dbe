#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/decoder.h"
#include "engine/sampler.h"
#include "model/offload.h"
#include "model/rope_overrides.h"

namespace cellar::cli {

// Options with a range. Text that is no number within it is a usage error that names the option,
// the range and the text; CLI11's own conversions let "-1", "" and "1e999" pass in places.
CLI::Option* add_whole(CLI::App& app, const std::string& name, int64_t low, int64_t high,
                       const std::string& help, std::function<void(int64_t)> set);
CLI::Option* add_real(CLI::App& app, const std::string& name, double low, double high,
                      const std::string& help, std::function<void(double)> set);

// The words for ways of attention.
const std::vector<std::pair<std::string, AttentionChoice>>& attention_choices();

// How a memory is made and computed with: -t, --ubatch, --page, --type-k, --type-v, --attention,
// --flash, --offload.
struct ComputeOptions {
    uint32_t n_threads = 0;
    uint32_t ubatch = 512;
    uint32_t page = 32;
    KvType type_k = KvType::kF16;
    KvType type_v = KvType::kF16;
    AttentionChoice attention = AttentionChoice::kAuto;
    Flash flash = Flash::kAuto;
    std::vector<Offload> offloads;  // of the model, when it is loaded

    ComputeOptions();  // n_threads: the processors that this process may use

    DecoderOptions decoder_options(uint32_t n_cells) const;
};
void add_compute_options(CLI::App& app, ComputeOptions& options);

// --rope-freq-base, --rope-freq-scale, --rope-scaling and YaRN's, with llama.cpp's names. Unless
// given, each is what the model's file says.
void add_rope_options(CLI::App& app, RopeOverrides& rope);

// -m FILE
void add_model_option(CLI::App& app, std::string& file);

// -c TOKENS
struct ContextOption {
    std::optional<uint32_t> given;

    // The context's length for a model that was trained on `n_ctx_train` tokens (0: unknown).
    uint32_t resolve(uint32_t n_ctx_train) const;
};
void add_context_option(CLI::App& app, ContextOption& option);

// --temp, --seed and the sampler's other parameters. Without --seed each run has another one.
void add_sampling_options(CLI::App& app, SamplerParams& params);

}  // namespace cellar::cli
