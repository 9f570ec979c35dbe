#include "cli/writer.h"

#include <fmt/format.h>

#include <CLI/Error.hpp>
#include <CLI/Option.hpp>
#include <limits>
#include <utility>

#include "cli/console.h"
#include "cli/debug_log.h"

namespace cellar::cli {

void add_writer_options(CLI::App& app, WriterOptions& options) {
    add_model_option(app, options.model);
    add_whole(app, "-n,--predict", -1, std::numeric_limits<int32_t>::max(),
              "tokens to write at most; -1: until the text ends or the context is full",
              [&options](int64_t n) {
                  options.max_tokens.reset();
                  if (n >= 0) {
                      options.max_tokens = static_cast<uint32_t>(n);
                  }
              })
        ->default_str("-1");
    add_context_option(app, options.context);
    add_compute_options(app, options.compute);
    add_rope_options(app, options.rope);
    add_sampling_options(app, options.sampling);
    app.add_flag("--ignore-eos", options.ignore_eos,
                 "go on after tokens that end a text, as after any other");
    add_whole(app, "--context-shift", 0, std::numeric_limits<int32_t>::max(),
              "when the context is full: keep so many tokens from its beginning, drop the older "
              "half of the rest, and go on (unless given, the text ends)",
              [&options](int64_t n) { options.context_shift = static_cast<uint32_t>(n); })
        ->type_name("KEEP");
    add_whole(app, "--reuse-chunks", 0, std::numeric_limits<int32_t>::max(),
              "of what a session holds elsewhere than the prompt has it, move runs of at least N "
              "tokens to their place instead of computing them: an approximation; 0: none",
              [&options](int64_t n) { options.reuse_chunks = static_cast<uint32_t>(n); })
        ->type_name("N")
        ->default_str("0");
    app.add_flag("-v,--verbose", options.verbose, "say on standard error what was computed");
    app.callback([&options] {
        if (Result<Sampler> sampler = Sampler::create(options.sampling); !sampler) {
            throw CLI::ValidationError(sampler.error().message);
        }
    });
}

namespace {

// One text at a time, and the fork of what it uses again.
DecoderOptions memory_for(const WriterOptions& options, uint32_t n_ctx) {
    const bool shifts = options.context_shift.has_value(), reuses = options.reuse_chunks > 0;
    const uint32_t page = options.compute.page;
    const uint32_t spare =
        (shifts ? Engine::shift_cells(page) : 0) + (reuses ? Engine::reuse_cells(page) : 0);
    DecoderOptions memory = options.compute.decoder_options(n_ctx + spare);
    memory.n_states = 0;
    memory.n_sequences = reuses ? 2 : 1;
    memory.spare_pages = (shifts ? kShiftPages : 0) + (reuses ? kReusePages : 0);
    return memory;
}

}  // namespace

Result<Writer> Writer::create(const WriterOptions& options) {
    Writer writer;
    auto loaded = load(options.model, WithTokenizer::kYes, options.compute.offloads, options.rope);
    if (!loaded) {
        return pass(std::move(loaded));
    }
    writer.loaded = std::make_unique<LoadedModel>(*std::move(loaded));
    const ModelInfo& info = writer.loaded->model->info();
    const uint32_t n_ctx = options.context.resolve(info.n_ctx_train);
    if (info.n_ctx_train > 0 && n_ctx > info.n_ctx_train) {
        complain(fmt::format("note: the model was trained on {} tokens of context, not {}",
                             info.n_ctx_train, n_ctx));
    }
    auto decoder = Decoder::create(*writer.loaded->model, memory_for(options, n_ctx));
    if (!decoder) {
        return pass(std::move(decoder));
    }
    writer.decoder = *std::move(decoder);
    log_memory(writer.decoder->memory());
    const auto ends = writer.loaded->tokenizer->vocab().ends();
    auto engine = Engine::create(*writer.decoder, {.n_ctx = n_ctx,
                                                   .n_vocab = info.n_vocab,
                                                   .step_tokens = options.compute.ubatch,
                                                   .eog = {ends.begin(), ends.end()}});
    if (!engine) {
        return pass(std::move(engine));
    }
    writer.engine = *std::move(engine);
    return writer;
}

Request make_request(const WriterOptions& options, std::vector<Token> prompt) {
    Request request;
    request.prompt = std::move(prompt);
    request.sampling = options.sampling;
    request.max_tokens = options.max_tokens;
    request.ignore_eos = options.ignore_eos;
    request.context_shift = options.context_shift;
    request.reuse_chunks = options.reuse_chunks;
    return request;
}

}  // namespace cellar::cli
