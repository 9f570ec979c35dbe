#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cells/view.h"
#include "engine/decoding.h"
#include "engine/engine.h"
#include "engine/writing.h"
#include "state/sink.h"
#include "state/source.h"

// Sessions that are saved by one engine and taken up by another.

namespace cellar {
namespace {

using testing::Decoding;
using testing::greedy;
using testing::joined;
using testing::offloading;
using testing::open_model;
using testing::prompt_of;
using testing::Text;

using Tokens = std::vector<Token>;
using Bytes = std::vector<std::byte>;

constexpr uint32_t kVocab = 128;

// An engine with a session.
struct Writer {
    Writer(const Model& model, uint32_t n_cells, uint32_t n_ctx, uint32_t page_size = 8,
           KvType type = KvType::kF32)
        : decoding(model, {.n_cells = n_cells,
                           .page_size = page_size,
                           .max_ubatch = 16,
                           .type_k = type,
                           .type_v = type}),
          engine(Engine::create(decoding.decoder(),
                                {.n_ctx = n_ctx, .n_vocab = kVocab, .step_tokens = 16})
                     .value()),
          session(engine->open_session()) {}

    Text write(Request request) {
        Text text;
        const auto id = engine->submit(std::move(request));
        EXPECT_TRUE(id) << id.error().message;
        while (!engine->idle()) {
            for (const Event& event : engine->step()) {
                text.take(event);
            }
        }
        return text;
    }

    // Goes on in the session.
    Text write(Tokens prompt, uint32_t n, std::optional<uint32_t> shift = {}) {
        Request request = greedy(std::move(prompt), n);
        request.session = session;
        request.context_shift = shift;
        return write(std::move(request));
    }

    Bytes save(std::span<const Token> text = {}) {
        auto saving = engine->save(session, identity, text);
        EXPECT_TRUE(saving) << saving.error().message;
        MemorySink sink;
        EXPECT_TRUE(saving->write(sink));
        EXPECT_EQ(sink.bytes().size(), saving->size());
        return sink.bytes();
    }

    Result<Tokens> load(const Bytes& bytes, const LoadSessionOptions& options = {}) {
        MemorySource source(bytes);
        return engine->load(session, identity, source, options);
    }

    size_t used_cells() { return make_view(decoding.memory().cells()).groups[0].used_cells; }

    Identity identity;
    Decoding decoding;
    std::unique_ptr<Engine> engine;
    SessionId session;
};

class EngineStateTest : public ::testing::TestWithParam<const char*> {
protected:
    EngineStateTest()
        : model_(open_model(std::string(CELLAR_TEST_DATA "/models/") + GetParam() + ".gguf")) {}

    const std::unique_ptr<Model> model_;
};

TEST_P(EngineStateTest, ALoadedSessionComputesOnlyTheLastTokenAndWritesTheSame) {
    Writer first(*model_, 256, 256), second(*model_, 512, 256, 16);
    const Tokens prompt = prompt_of(70);
    const Tokens half = first.write(prompt, 10).tokens;
    const Bytes state = first.save(joined(prompt, half));
    const Tokens rest = first.write(joined(prompt, half), 10).tokens;

    second.write(prompt_of(30, 9), 4);  // goes when the state comes
    const auto text = second.load(state);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(*text, joined(prompt, half));
    EXPECT_EQ(second.engine->held(second.session), prompt.size() + half.size() - 1);
    const Text more = second.write(*text, 10);
    EXPECT_EQ(more.tokens, rest);
    EXPECT_EQ(more.usage.cached, text->size() - 1);
    EXPECT_EQ(more.usage.computed, 10u);  // the last token of the text, and all but one of its own
}

INSTANTIATE_TEST_SUITE_P(Models, EngineStateTest,
                         ::testing::Values("tiny-llama", "tiny-gemma3", "tiny-mamba", "tiny-lfm2"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

// K and V over two devices are saved as if they were on one.
TEST(OffloadedStates, LoadOnTheCpuAndTheOtherWayRound) {
    for (const char* model : {"tiny-llama", "tiny-gemma3", "tiny-lfm2"}) {
        SCOPED_TRACE(model);
        const std::string path = std::string(CELLAR_TEST_DATA "/models/") + model + ".gguf";
        const auto near = open_model(path), far = open_model(path, offloading("2"));
        Writer here(*near, 256, 256), there(*far, 256, 256), back(*near, 256, 256);
        const Tokens prompt = prompt_of(70);
        const Tokens half = there.write(prompt, 10).tokens;
        const Bytes state = there.save(joined(prompt, half));
        const auto text = here.load(state);
        ASSERT_TRUE(text) << text.error().message;
        EXPECT_EQ(here.save(*text).size(), state.size());
        const Tokens more = here.write(*text, 10).tokens;
        EXPECT_EQ(more, there.write(*text, 10).tokens);

        ASSERT_TRUE(there.load(here.save(joined(*text, more))));
        const Text last = there.write(joined(*text, more), 10);
        EXPECT_EQ(last.usage.computed, 10u);
        EXPECT_EQ(last.tokens, back.write(joined(*text, more), 10).tokens);
    }
}

class LlamaStateTest : public ::testing::Test {
protected:
    const Model& model_ = testing::tiny_llama();
};

TEST_F(LlamaStateTest, SavesOnlyTextsThatTheSessionIsTheBeginningOf) {
    Writer writer(model_, 256, 256);
    EXPECT_EQ(writer.engine->save(writer.session, {}).error().code, Code::kBadRange);
    EXPECT_EQ(writer.engine->save(SessionId{77}, {}).error().code, Code::kBadRange);
    const Tokens prompt = prompt_of(20);
    writer.write(prompt, 3);
    EXPECT_EQ(writer.engine->save(writer.session, {}, prompt).error().code,
              Code::kInvalidArgument);  // shorter than what is held
    EXPECT_EQ(writer.engine->save(writer.session, {}, prompt_of(40, 2)).error().code,
              Code::kInvalidArgument);
    EXPECT_TRUE(writer.engine->save(writer.session, {}));
}

TEST_F(LlamaStateTest, ABusySessionIsNeitherSavedNorLoaded) {
    Writer writer(model_, 256, 256);
    writer.write(prompt_of(20), 3);
    const Bytes state = writer.save();
    Request request = greedy(prompt_of(20), 3);
    request.session = writer.session;
    ASSERT_TRUE(writer.engine->submit(request));
    EXPECT_EQ(writer.engine->save(writer.session, {}).error().code, Code::kBusy);
    EXPECT_EQ(writer.load(state).error().code, Code::kBusy);
}

TEST_F(LlamaStateTest, WhatIsRefusedLeavesTheSessionAsItWas) {
    Writer big(model_, 256, 256), small(model_, 256, 64), writer(model_, 256, 128);
    const Tokens long_text = prompt_of(100), own = prompt_of(30, 5);
    big.write(long_text, 0);
    const Bytes state = big.save();
    const auto expect_refused = [&](Writer& w, const Bytes& bytes, Code code) {
        const Text before = w.write(own, 5);
        const size_t used = w.used_cells();
        const auto loaded = w.load(bytes);
        ASSERT_FALSE(loaded);
        EXPECT_EQ(loaded.error().code, code) << loaded.error().message;
        EXPECT_EQ(w.used_cells(), used);
        const Text after = w.write(own, 5);
        EXPECT_EQ(after.tokens, before.tokens);
        EXPECT_EQ(after.usage.cached, own.size() - 1);
    };
    expect_refused(small, state, Code::kBadRange);  // more than the context
    expect_refused(writer, {state.begin(), state.end() - 1}, Code::kBadFile);
    writer.identity.rope[0] = 1;
    expect_refused(writer, state, Code::kUnsupported);
}

TEST_F(LlamaStateTest, WhatHoldsNoTextFromTheFirstTokenOnIsRefused) {
    Decoding decoding(model_, {.n_cells = 128, .type_k = KvType::kF32, .type_v = KvType::kF32});
    decoding.append(SeqId{0}, prompt_of(40));
    const auto save = [&](const Tokens& tokens) {
        const SequenceToSave seq{SeqId{0}, tokens};
        MemorySink sink;
        EXPECT_TRUE(Saving::begin(decoding.memory(), {}, {&seq, 1}, {})->write(sink));
        return sink.bytes();
    };
    Writer writer(model_, 256, 256);
    EXPECT_EQ(writer.load(save(prompt_of(39))).error().code, Code::kUnsupported);
    Tokens strange = prompt_of(40);
    strange[7] = 128;
    EXPECT_EQ(writer.load(save(strange)).error().code, Code::kInvalidArgument);
    EXPECT_TRUE(writer.load(save(prompt_of(40))));
    ASSERT_TRUE(decoding.memory().seq_rm(SeqId{0}, 10, 12));
    EXPECT_EQ(writer.load(save(prompt_of(40))).error().code, Code::kUnsupported);
}

TEST_F(LlamaStateTest, CellsOfALoadedSessionAreSetAside) {
    Writer first(model_, 128, 128), second(model_, 128, 128);
    first.write(prompt_of(100), 0);
    const Bytes state = first.save();
    ASSERT_TRUE(second.load(state));
    // 104 of 128 cells are the session's: a text of 40 never fits, one of 24 does.
    EXPECT_EQ(second.write(greedy(prompt_of(30), 10)).error->code, Code::kNoRoom);
    EXPECT_FALSE(second.write(greedy(prompt_of(14), 10)).error);
    ASSERT_TRUE(second.engine->close_session(second.session));
    EXPECT_FALSE(second.write(greedy(prompt_of(118), 10)).error);
}

TEST_F(LlamaStateTest, RunningRequestsKeepTheirRoom) {
    Writer first(model_, 128, 128), second(model_, 128, 128);
    first.write(prompt_of(60), 0);
    const Bytes state = first.save();
    ASSERT_TRUE(second.engine->submit(greedy(prompt_of(8), 80)));  // 88 cells set aside
    (void)second.engine->step();
    const auto refused = second.load(state);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kNoRoom);
    EXPECT_EQ(refused.error().room->needed, 64u);
    EXPECT_EQ(refused.error().room->free, 40u);
}

TEST_F(LlamaStateTest, AShiftedSessionIsSavedWithItsPositions) {
    Writer first(model_, 128, 64), second(model_, 128, 64, 4);
    const Tokens prompt = prompt_of(50);
    const Text text = first.write(prompt, 40, 4);  // drops from the middle, twice or more
    ASSERT_GT(text.usage.dropped, 0u);
    Tokens whole = joined(prompt, text.tokens);
    whole.erase(whole.begin() + 4, whole.begin() + 4 + text.usage.dropped);
    const Bytes state = first.save(whole);
    const auto loaded = second.load(state);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(*loaded, whole);
    EXPECT_EQ(second.write(whole, 60, 4).tokens, first.write(whole, 60, 4).tokens);
}

TEST_F(LlamaStateTest, OtherTypesAreConvertedOnRequest) {
    Writer first(model_, 128, 128), second(model_, 128, 128, 8, KvType::kF16);
    const Tokens prompt = prompt_of(60);
    const Tokens half = first.write(prompt, 4).tokens;
    const Bytes state = first.save(joined(prompt, half));
    EXPECT_EQ(second.load(state).error().code, Code::kUnsupported);
    const auto text = second.load(state, {.convert = true});
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(second.write(*text, 6).usage.cached, text->size() - 1);
}

}  // namespace
}  // namespace cellar
