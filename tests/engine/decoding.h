#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/decoder.h"
#include "gguf/gguf_file.h"
#include "model/model.h"
#include "testing/far_device.h"
#include "testing/scratch_file.h"

namespace cellar::testing {

using Row = std::vector<float>;

// How attention is computed.
enum class Way { kKernel, kFlash, kSoftMax, kAuto };

inline std::ostream& operator<<(std::ostream& out, Way way) {
    static constexpr const char* kNames[] = {"kernel", "flash", "soft-max", "auto"};
    return out << kNames[static_cast<int>(way)];
}

inline void choose(Way way, DecoderOptions& options) {
    options.attention = way == Way::kKernel ? AttentionChoice::kKernel
                        : way == Way::kAuto ? AttentionChoice::kAuto
                                            : AttentionChoice::kGraph;
    options.flash = way == Way::kSoftMax ? Flash::kOff : Flash::kOn;
}

inline std::unique_ptr<Model> open_model(const std::string& path, const LoadOptions& options = {}) {
    auto file = GgufFile::open(path);
    EXPECT_TRUE(file) << file.error().message;
    auto model = load_model(file.value(), options);
    EXPECT_TRUE(model) << model.error().message;
    return std::move(model).value();
}

// With those layers on the device that is made for tests; all on the CPU if none are named, or if
// there is no such device here.
inline LoadOptions offloading(const std::string& layers) {
    LoadOptions options;
    if (layers.empty() || !far_device()) return options;
    options.offloads.push_back(Offload::parse(layers + "@FAR0").value());
    return options;
}

// The model that a file of these bytes holds, or why there is none.
inline Result<std::unique_ptr<Model>> load_model_of(const std::string& bytes) {
    const ScratchFile scratch(bytes);
    auto file = GgufFile::open(scratch.path());
    if (!file) return pass(std::move(file));
    return load_model(*file, {});
}

// Four layers, two of four heads for keys, 128 tokens; weights at random (tests/data/models).
inline const Model& tiny_llama() {
    static const auto model = open_model(CELLAR_TEST_DATA "/models/tiny-llama.gguf");
    return *model;
}

inline nlohmann::json expected(const std::string& name) {
    std::ifstream file(std::string(CELLAR_TEST_DATA "/expected/") + name);
    return nlohmann::json::parse(file);
}

inline float max_difference(std::span<const float> a, std::span<const float> b) {
    EXPECT_EQ(a.size(), b.size());
    float most = 0;
    for (size_t i = 0; i < a.size(); i++) {
        const float difference = std::abs(a[i] - b[i]);
        if (!(difference <= most)) {
            most = difference;
        }
        if (std::isnan(most)) {  // no later difference may hide it
            break;
        }
    }
    return most;
}

// Tokens of the tiny models that differ by `seed`.
inline std::vector<Token> random_text(size_t n, uint32_t seed) {
    std::vector<Token> tokens(n);
    for (Token& token : tokens) {
        seed = seed * 1664525 + 1013904223;
        token = static_cast<Token>(seed >> 16) % 128;
    }
    return tokens;
}

// A prompt of theirs, whose tokens are not at random.
inline std::vector<Token> prompt_of(size_t n, int seed = 1) {
    std::vector<Token> tokens;
    for (size_t i = 0; i < n; i++) {
        tokens.push_back(static_cast<Token>((i * 37 + static_cast<size_t>(seed) * 61) % 128));
    }
    return tokens;
}

inline std::vector<Token> joined(std::vector<Token> a, const std::vector<Token>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// A decoder with verbs for tests: failures end the test, logits come back by item.
class Decoding {
public:
    Decoding(const Model& model, const DecoderOptions& options) {
        auto decoder = Decoder::create(model, options);
        EXPECT_TRUE(decoder) << decoder.error().message;
        decoder_ = std::move(decoder).value();
    }

    std::map<size_t, Row> decode(const Batch& batch) {
        std::map<size_t, Row> rows;
        auto done = decoder_->decode(batch, [&](size_t item, std::span<const float> row) {
            rows[item].assign(row.begin(), row.end());
        });
        EXPECT_TRUE(done) << done.error().message;
        return rows;
    }

    // Appends tokens to a sequence; returns the logits behind the last one.
    Row append(SeqId seq, const std::vector<Token>& tokens) {
        Batch batch;
        for (size_t i = 0; i < tokens.size(); i++) {
            batch.add(tokens[i], seq, kNextPos, i + 1 == tokens.size());
        }
        return decode(batch).begin()->second;
    }

    Memory& memory() { return decoder_->memory(); }
    Decoder& decoder() { return *decoder_; }

private:
    std::unique_ptr<Decoder> decoder_;
};

}  // namespace cellar::testing
