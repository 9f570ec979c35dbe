#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace cellar::testing {

// A small byte-level vocabulary to build in a test: token b is byte b, for all 256.
class ToyVocab {
public:
    explicit ToyVocab(std::string pre = "gpt-2") {
        data_.model = "gpt2";
        data_.pre = std::move(pre);
        const ByteAlphabet alphabet;
        for (size_t byte = 0; byte < 256; ++byte)
            add(std::string(alphabet.letter(static_cast<uint8_t>(byte))), TokenKind::kNormal);
    }

    // Spelled in the alphabet. Gives the new token.
    Token add(std::string text, TokenKind kind) {
        data_.texts.push_back(std::move(text));
        data_.kinds.push_back(static_cast<int32_t>(kind));
        return static_cast<Token>(data_.texts.size() - 1);
    }

    Token control(std::string text) { return add(std::move(text), TokenKind::kControl); }
    Token user_defined(std::string text) { return add(std::move(text), TokenKind::kUserDefined); }

    // A merge, and the token it makes unless that is there already.
    Token merge(const std::string& left, const std::string& right) {
        data_.merges.push_back(left + " " + right);
        const auto known = std::find(data_.texts.begin(), data_.texts.end(), left + right);
        if (known != data_.texts.end()) return static_cast<Token>(known - data_.texts.begin());
        return add(left + right, TokenKind::kNormal);
    }

    VocabData& data() { return data_; }

    Result<std::unique_ptr<Tokenizer>> create() const {
        auto vocab = Vocab::create(data_);
        if (!vocab) return pass(std::move(vocab));
        return Tokenizer::create(std::move(*vocab));
    }

    // For a vocabulary that is meant to be sound.
    std::unique_ptr<Tokenizer> tokenizer() const { return create().value(); }

private:
    VocabData data_;
};

}  // namespace cellar::testing
