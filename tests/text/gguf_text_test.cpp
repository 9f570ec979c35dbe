#include "text/gguf_text.h"

#include <gguf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "text/byte_alphabet.h"

namespace cellar {
namespace {

using ::testing::HasSubstr;

// A GGUF file of metadata alone, written by ggml.
class Metadata {
public:
    Metadata() : context_(gguf_init_empty()) {}

    gguf_context* get() { return context_.get(); }

    void set(const char* key, const char* value) { gguf_set_val_str(get(), key, value); }
    void set(const char* key, uint32_t value) { gguf_set_val_u32(get(), key, value); }
    void set(const char* key, bool value) { gguf_set_val_bool(get(), key, value); }
    void set(const char* key, const std::vector<std::string>& values) {
        std::vector<const char*> texts;
        for (const std::string& value : values)
            texts.push_back(value.c_str());
        gguf_set_arr_str(get(), key, texts.data(), texts.size());
    }
    void set(const char* key, const std::vector<int32_t>& values) {
        gguf_set_arr_data(get(), key, GGUF_TYPE_INT32, values.data(), values.size());
    }
    void remove(const char* key) { gguf_remove_key(get(), key); }

    GgufFile open() {
        const auto path = std::filesystem::temp_directory_path() /
                          ("cellar_gguf_text_" + std::to_string(getpid()) + ".gguf");
        EXPECT_TRUE(gguf_write_to_file(get(), path.c_str(), true));
        auto file = GgufFile::open(path);
        std::filesystem::remove(path);
        return std::move(file).value();
    }

private:
    struct Free {
        void operator()(gguf_context* context) const { gguf_free(context); }
    };
    std::unique_ptr<gguf_context, Free> context_;
};

Metadata sound() {
    std::vector<std::string> texts;
    const ByteAlphabet alphabet;
    for (size_t byte = 0; byte < 256; ++byte)
        texts.emplace_back(alphabet.letter(static_cast<uint8_t>(byte)));
    texts.insert(texts.end(), {"ab", "<|end|>"});
    std::vector<int32_t> kinds(texts.size(), 1);
    kinds.back() = 3;

    Metadata data;
    data.set("tokenizer.ggml.model", "gpt2");
    data.set("tokenizer.ggml.pre", "smollm");
    data.set("tokenizer.ggml.tokens", texts);
    data.set("tokenizer.ggml.token_type", kinds);
    data.set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    data.set("tokenizer.ggml.bos_token_id", 257u);
    data.set("tokenizer.ggml.eos_token_id", 257u);
    data.set("tokenizer.ggml.add_bos_token", true);
    return data;
}

TEST(GgufText, LoadsATokenizer) {
    const auto tokenizer = load_tokenizer(sound().open());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ((*tokenizer)->encode("ab", {.add_bos = true}), (std::vector<Token>{257, 256}));
    EXPECT_EQ((*tokenizer)->vocab().eos(), 257);
    EXPECT_EQ((*tokenizer)->vocab().pre(), "smollm");
}

TEST(GgufText, FindsTheChatTemplate) {
    Metadata data = sound();
    EXPECT_EQ(find_chat_template(data.open()).value(), std::nullopt);
    data.set("tokenizer.chat_template", "{{ messages }}");
    const GgufFile file = data.open();
    EXPECT_EQ(find_chat_template(file).value(), "{{ messages }}");
}

struct HostileCase {
    const char* name;
    std::function<void(Metadata&)> damage;
    Code code;
    const char* message;
};

class HostileMetadataTest : public ::testing::TestWithParam<HostileCase> {};

TEST_P(HostileMetadataTest, IsRefusedInOneSentenceWithTheFilesName) {
    Metadata data = sound();
    GetParam().damage(data);
    const GgufFile file = data.open();
    const auto tokenizer = load_tokenizer(file);
    ASSERT_FALSE(tokenizer);
    EXPECT_EQ(tokenizer.error().code, GetParam().code);
    EXPECT_THAT(tokenizer.error().message, HasSubstr(GetParam().message));
    EXPECT_THAT(tokenizer.error().message, ::testing::StartsWith(file.path()));
}

INSTANTIATE_TEST_SUITE_P(
    Damage, HostileMetadataTest,
    ::testing::Values(
        HostileCase{"NoTokenizer", [](Metadata& data) { data.remove("tokenizer.ggml.model"); },
                    Code::kUnsupported, "has no tokenizer"},
        HostileCase{"ModelIsANumber", [](Metadata& data) { data.set("tokenizer.ggml.model", 1u); },
                    Code::kBadFile, "tokenizer.ggml.model"},
        HostileCase{"UnknownModel",
                    [](Metadata& data) {
                        data.set("tokenizer.ggml.model", "test");
                        data.set("tokenizer.ggml.tokens", "not even a list");
                    },
                    Code::kUnsupported, "unknown tokenizer 'test'"},
        HostileCase{"NoTokens", [](Metadata& data) { data.remove("tokenizer.ggml.tokens"); },
                    Code::kBadFile, "has no tokens"},
        HostileCase{"TokensAreNumbers",
                    [](Metadata& data) {
                        data.set("tokenizer.ggml.tokens", std::vector<int32_t>{1, 2});
                    },
                    Code::kBadFile, "tokenizer.ggml.tokens"},
        HostileCase{"TypesDoNotCount",
                    [](Metadata& data) {
                        data.set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 2});
                    },
                    Code::kBadFile, "2 token types for 258 tokens"},
        HostileCase{"MergesAreAString",
                    [](Metadata& data) { data.set("tokenizer.ggml.merges", "a b"); },
                    Code::kBadFile, "tokenizer.ggml.merges"},
        HostileCase{"MergeOfUnknowns",
                    [](Metadata& data) {
                        data.set("tokenizer.ggml.merges", std::vector<std::string>{"x\n y"});
                    },
                    Code::kBadFile, "merge 0 is 'x? y'"},
        HostileCase{"BosIsAString",
                    [](Metadata& data) { data.set("tokenizer.ggml.bos_token_id", "one"); },
                    Code::kBadFile, "tokenizer.ggml.bos_token_id"},
        HostileCase{"EosOutOfRange",
                    [](Metadata& data) { data.set("tokenizer.ggml.eos_token_id", 258u); },
                    Code::kBadFile, "the EOS token is 258, but the vocabulary has 258 tokens"},
        HostileCase{"AddBosIsANumber",
                    [](Metadata& data) { data.set("tokenizer.ggml.add_bos_token", 1u); },
                    Code::kBadFile, "tokenizer.ggml.add_bos_token"},
        HostileCase{"UnknownPre",
                    [](Metadata& data) { data.set("tokenizer.ggml.pre", "who knows"); },
                    Code::kUnsupported, "unknown pre-tokenizer 'who knows'"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cellar
