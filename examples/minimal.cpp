// The main path: a model file and a prompt in, text out.
//
//   minimal models/SmolLM2-135M-Instruct.Q4_1.gguf 'The capital of France is'

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "engine/decoder.h"
#include "engine/engine.h"
#include "gguf/gguf_file.h"
#include "model/model.h"
#include "text/gguf_text.h"
#include "text/text_stream.h"

using namespace cellar;

// What `result` holds; ends the program when it is an error.
template <class T>
T need(Result<T> result) {
    if (!result) {
        std::fprintf(stderr, "%s\n", result.error().message.c_str());
        std::exit(1);
    }
    return *std::move(result);
}

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s MODEL.gguf PROMPT\n", argv[0]);
        return 2;
    }
    const GgufFile file = need(GgufFile::open(argv[1]));
    const auto tokenizer = need(load_tokenizer(file));
    const auto model = need(load_model(file, {}));

    // The memory: 2048 cells, each with the keys and values of one token in all layers.
    DecoderOptions memory;
    memory.n_cells = 2048;
    const auto decoder = need(Decoder::create(*model, memory));

    EngineOptions options;
    options.n_ctx = 2048;
    options.n_vocab = model->info().n_vocab;
    const auto ends = tokenizer->vocab().ends();
    options.eog.assign(ends.begin(), ends.end());
    const auto engine = need(Engine::create(*decoder, options));

    Request request;
    request.prompt = tokenizer->encode(argv[2], {.add_bos = tokenizer->adds_bos()});
    request.sampling.temperature = 0.0f;
    request.max_tokens = 64;
    need(engine->submit(std::move(request)));

    TextStream text(*tokenizer);
    while (!engine->idle()) {
        for (const Event& event : engine->step()) {
            if (event.error) {
                std::fprintf(stderr, "%s\n", event.error->message.c_str());
                return 1;
            }
            if (event.token) {
                std::fputs(text.push(*event.token).c_str(), stdout);
                std::fflush(stdout);
            }
        }
    }
    std::puts(text.finish().c_str());
}
