#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "cli/loaded_model.h"
#include "cli/options.h"
#include "engine/decoder.h"
#include "engine/engine.h"

namespace cellar::cli {

// What `generate` and `chat` have in common on the command line.
struct WriterOptions {
    std::string model;
    ContextOption context;
    ComputeOptions compute;
    RopeOverrides rope;
    SamplerParams sampling;
    std::optional<uint32_t> max_tokens;
    bool ignore_eos = false;
    std::optional<uint32_t> context_shift;
    uint32_t reuse_chunks = 0;
    bool json = false;
    bool verbose = false;
};
void add_writer_options(CLI::App& app, WriterOptions& options);

// A model ready to write: loaded, with a memory of the context's size and an engine.
struct Writer {
    std::unique_ptr<LoadedModel> loaded;
    std::unique_ptr<Decoder> decoder;
    std::unique_ptr<Engine> engine;

    static Result<Writer> create(const WriterOptions& options);
};

// A request with what the command line says of sampling and of ends.
Request make_request(const WriterOptions& options, std::vector<Token> prompt);

}  // namespace cellar::cli
