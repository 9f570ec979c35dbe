#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/decoding.h"
#include "engine/engine.h"
#include "engine/writing.h"
#include "state/sink.h"
#include "state/source.h"

// More requests than windows and states have room for: they wait, and no step ever finds the memory
// full.

namespace cellar {
namespace {

using testing::Decoding;
using testing::greedy;
using testing::joined;
using testing::open_model;
using testing::prompt_of;
using testing::Text;

using Tokens = std::vector<Token>;

constexpr uint32_t kVocab = 128;

DecoderOptions small(uint32_t n_states, uint32_t n_sequences) {
    DecoderOptions options;
    options.n_cells = 1024;
    options.page_size = 8;
    options.max_ubatch = 16;
    options.type_k = options.type_v = KvType::kF32;
    options.n_states = n_states;
    options.n_sequences = n_sequences;
    return options;
}

class Rig {
public:
    Rig(const Model& model, const DecoderOptions& options, uint32_t n_ctx = 200)
        : decoding_(model, options),
          engine_(Engine::create(decoding_.decoder(),
                                 {.n_ctx = n_ctx, .n_vocab = kVocab, .step_tokens = 16})
                      .value()) {}

    static Request request(Tokens prompt, uint32_t n, std::optional<SessionId> session = {}) {
        Request request = greedy(std::move(prompt), n);
        request.session = session;
        return request;
    }

    void step() {
        for (const Event& event : engine_->step()) {
            texts_[event.request].take(event);
        }
        most_held_ = std::max(most_held_, memory().cells().sequences().size());
    }

    std::map<RequestId, Text> run() {
        for (int i = 0; i < 10000 && !engine_->idle(); i++) {
            step();
        }
        EXPECT_TRUE(engine_->idle());
        return std::exchange(texts_, {});
    }

    Text write(Request request) {
        const auto id = engine_->submit(std::move(request));
        EXPECT_TRUE(id) << id.error().message;
        return run()[*id];
    }

    Engine& engine() { return *engine_; }
    Memory& memory() { return decoding_.memory(); }
    size_t most_held() const { return most_held_; }  // sequences behind a step

private:
    Decoding decoding_;
    std::unique_ptr<Engine> engine_;
    std::map<RequestId, Text> texts_;
    size_t most_held_ = 0;
};

Tokens alone(const Model& model, const Tokens& prompt, uint32_t n) {
    return Rig(model, small(64, 0)).write(Rig::request(prompt, n)).tokens;
}

// Five requests at once, each of which must write what it writes alone where there is room.
template <class Prompt>
void expect_five(Rig& rig, Rig& wide, const Prompt& prompt, uint32_t n) {
    RequestId ids[5];
    for (int i = 0; i < 5; i++) {
        ids[i] = rig.engine().submit(Rig::request(prompt(i), n)).value();
    }
    auto texts = rig.run();
    for (int i = 0; i < 5; i++) {
        const Text& text = texts[ids[i]];
        EXPECT_FALSE(text.error) << text.error->message;
        EXPECT_EQ(text.tokens, wide.write(Rig::request(prompt(i), n)).tokens) << i;
    }
}

std::unique_ptr<Model> tiny(const std::string& name) {
    return open_model(CELLAR_TEST_DATA "/models/tiny-" + name + ".gguf");
}

class StateTextsTest : public ::testing::TestWithParam<const char*> {
protected:
    void expect_all_finish(const DecoderOptions& options, size_t n_texts) const {
        Rig rig(*model_, options), wide(*model_, small(64, 0));
        expect_five(rig, wide, prompt, 12);
        EXPECT_EQ(rig.most_held(), n_texts);
    }

    static Tokens prompt(int i) { return prompt_of(10 + 9 * static_cast<size_t>(i), i); }

    const std::unique_ptr<Model> model_ = tiny(GetParam());
};

TEST_P(StateTextsTest, MoreRequestsThanStatesWaitTheirTurn) {
    for (const uint32_t n_states : {2u, 3u, 4u}) {
        expect_all_finish(small(n_states, 0), n_states / 2);
    }
    expect_all_finish(small(0, 3), 3);
    expect_all_finish(small(64, 3), 3);
}

TEST_P(StateTextsTest, RollBackAndCheckpointsTakeStatesToo) {
    DecoderOptions options = small(9, 0);
    options.n_rollback = 2;
    options.max_checkpoints = 3;
    expect_all_finish(options, 1);
    options.n_states = 18;
    expect_all_finish(options, 2);
}

TEST_P(StateTextsTest, AMemoryWithoutRoomForOneTextIsRefused) {
    DecoderOptions options = small(4, 0);
    options.n_rollback = 2;
    Decoding decoding(*model_, options);
    const auto engine = Engine::create(decoding.decoder(), {.n_ctx = 10, .n_vocab = kVocab});
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, Code::kInvalidArgument);
}

TEST_P(StateTextsTest, IdleSessionsInTheWayAreNamed) {
    Rig rig(*model_, small(4, 0));
    const SessionId one = rig.engine().open_session(), two = rig.engine().open_session(),
                    three = rig.engine().open_session();
    const Tokens first = rig.write(Rig::request(prompt(1), 4, one)).tokens;
    EXPECT_FALSE(rig.write(Rig::request(prompt(2), 4, two)).error);
    // Both go on, at once; a third one cannot begin, and neither can a request by itself.
    const Tokens more = joined(joined(prompt(1), first), {5, 6});
    const auto goes_on = rig.engine().submit(Rig::request(more, 6, one)).value();
    const auto waits = rig.engine().submit(Rig::request(prompt(3), 6, three)).value();
    const auto also_waits = rig.engine().submit(Rig::request(prompt(3), 6)).value();
    const auto also_goes_on = rig.engine().submit(Rig::request(prompt(4), 6, two)).value();
    auto texts = rig.run();
    EXPECT_EQ(texts[goes_on].tokens, alone(*model_, more, 6));
    EXPECT_EQ(texts[also_goes_on].tokens, alone(*model_, prompt(4), 6));
    for (const RequestId id : {waits, also_waits}) {
        ASSERT_TRUE(texts[id].error);
        EXPECT_EQ(texts[id].error->code, Code::kNoRoom);
        EXPECT_EQ(texts[id].error->message,
                  "the request needs a sequence, but requests and sessions leave 0 free of the 2 "
                  "that the memory has room for");
        EXPECT_EQ(texts[id].error->room->needed, 1u);
        EXPECT_EQ(texts[id].error->room->free, 0u);
    }
    ASSERT_TRUE(rig.engine().close_session(two));
    EXPECT_EQ(rig.write(Rig::request(prompt(3), 6, three)).tokens, alone(*model_, prompt(3), 6));
}

TEST_P(StateTextsTest, TheStatesOfASessionAreNoCells) {
    DecoderOptions options = small(0, 2);
    options.n_cells = 64;
    options.n_rollback = 5;
    Rig rig(*model_, options, 56);
    const SessionId session = rig.engine().open_session();
    rig.write(Rig::request(prompt_of(7), 0, session));  // a page, and six states
    EXPECT_EQ(cells_held(rig.memory(), rig.memory().cells().sequences()[0]), 8u);
    EXPECT_FALSE(rig.write(Rig::request(prompt_of(50), 6)).error);
    ASSERT_TRUE(rig.engine().close_session(session));
    EXPECT_FALSE(rig.write(Rig::request(prompt_of(50), 6)).error);
}

TEST_P(StateTextsTest, AStateIsLoadedWhereATextIsFree) {
    Rig rig(*model_, small(2, 0));
    const SessionId saved = rig.engine().open_session();
    rig.write(Rig::request(prompt(2), 0, saved));
    MemorySink sink;
    ASSERT_TRUE(rig.engine().save(saved, {})->write(sink));
    const auto load = [&](SessionId session) {
        MemorySource source(sink.bytes());
        return rig.engine().load(session, {}, source);
    };
    const SessionId other = rig.engine().open_session();
    EXPECT_EQ(load(saved).error().code, Code::kNoRoom);
    EXPECT_EQ(load(other).error().code, Code::kNoRoom);
    ASSERT_TRUE(rig.engine().close_session(saved));
    ASSERT_TRUE(load(other));
    EXPECT_EQ(load(saved).error().code, Code::kBadRange);
    EXPECT_EQ(rig.write(Rig::request(prompt(3), 2)).error->code, Code::kNoRoom);
    const Text text = rig.write(Rig::request(joined(prompt(2), {7}), 5, other));
    EXPECT_EQ(text.tokens, alone(*model_, joined(prompt(2), {7}), 5));
    EXPECT_EQ(text.usage.cached, prompt(2).size());
    ASSERT_TRUE(rig.engine().close_session(other));
    EXPECT_FALSE(rig.write(Rig::request(prompt(3), 2)).error);
}

INSTANTIATE_TEST_SUITE_P(Models, StateTextsTest, ::testing::Values("mamba", "lfm2"),
                         [](const auto& info) { return std::string(info.param); });

class WindowTextsTest : public ::testing::Test {
protected:
    // Over four windows of text, in a context as long.
    Tokens prompt(int i) const { return prompt_of(4 * window_ + 9 * static_cast<size_t>(i), i); }
    uint32_t n_ctx() const { return 6 * window_; }

    DecoderOptions options(uint32_t n_sequences, uint32_t spare_pages = 0) const {
        DecoderOptions options = small(0, n_sequences);
        options.n_cells = 8 * n_ctx();
        options.spare_pages = spare_pages;
        return options;
    }

    static uint32_t window_of(const Model& model) {
        for (const GroupKind kind : model.info().kinds)
            if (kind.slides()) return kind.window;
        return 0;
    }

    const std::unique_ptr<Model> model_ = tiny("gemma3");
    const uint32_t window_ = window_of(*model_);
};

TEST_F(WindowTextsTest, MoreRequestsThanWindowsWaitTheirTurn) {
    Rig rig(*model_, options(2), n_ctx()), wide(*model_, options(0), n_ctx());
    ASSERT_GT(window_, 0u);
    EXPECT_LT(rig.memory().bytes(), wide.memory().bytes());
    expect_five(
        rig, wide, [this](int i) { return prompt(i); }, 40);
    EXPECT_EQ(rig.most_held(), 2u);
}

// What a larger page or a longer roll-back keeps on besides would be somebody else's room.
TEST_F(WindowTextsTest, ALoadedTextTakesNoMoreThanOneComputedHere) {
    DecoderOptions keeping = options(1);
    keeping.page_size = 64;
    keeping.n_rollback = 20;
    Rig first(*model_, keeping, n_ctx()), second(*model_, options(2), n_ctx());
    const SessionId saved = first.engine().open_session();
    first.write(Rig::request(prompt(1), 0, saved));
    MemorySink sink;
    ASSERT_TRUE(first.engine().save(saved, {})->write(sink));
    MemorySource source(sink.bytes());
    const SessionId loaded = second.engine().open_session();
    ASSERT_TRUE(second.engine().load(loaded, {}, source));
    const Cells& cells = second.memory().cells();
    for (uint32_t g = 0; g < cells.n_groups(); g++) {
        if (cells.kind(g).slides()) {
            EXPECT_LE(cells.n_cells(cells.sequences()[0], g), window_ - 1 + 7);  // one page's more
        }
    }
    EXPECT_EQ(second.write(Rig::request(joined(prompt(1), {3}), 9, loaded)).tokens,
              first.write(Rig::request(joined(prompt(1), {3}), 9, saved)).tokens);
}

TEST_F(WindowTextsTest, ShiftsAndReuseNeedSparePages) {
    Rig none(*model_, options(2), n_ctx()), some(*model_, options(2, kShiftPages), n_ctx());
    Request request = Rig::request(prompt(1), 5);
    request.context_shift = 4;
    EXPECT_EQ(none.engine().submit(request).error().code, Code::kInvalidArgument);
    EXPECT_TRUE(some.engine().submit(request));
    request.session = some.engine().open_session();
    request.reuse_chunks = 8;
    EXPECT_EQ(some.engine().submit(request).error().code, Code::kInvalidArgument);
}

// What is left of 9 and 23 cells lies on 2 and 4 pages; 31 in a row touch at most 5.
TEST_F(WindowTextsTest, AShiftedTextHasItsSparePages) {
    ASSERT_EQ(window_, 32u);
    DecoderOptions tight = options(1, kShiftPages);
    tight.max_ubatch = 1;
    Rig rig(*model_, tight, window_);
    Request request = Rig::request(prompt_of(20), 80);
    request.context_shift = 9;
    const Text text = rig.write(request);
    EXPECT_FALSE(text.error) << text.error->message;
    EXPECT_EQ(text.tokens.size(), 80u);
    EXPECT_GT(text.usage.dropped, 20u);
    EXPECT_LE(text.usage.computed, 100u);  // nothing that was dropped by mistake
}

TEST_F(WindowTextsTest, AReuseNeedsASecondTextWhileItMoves) {
    const Tokens common = testing::random_text(60, 3), before = testing::random_text(16, 4);
    const auto reusing = [&](Rig& rig) {
        const SessionId session = rig.engine().open_session();
        rig.write(Rig::request(common, 0, session));
        Request request = Rig::request(joined(before, joined(common, {1})), 2, session);
        request.reuse_chunks = 16;
        return request;
    };
    const Model& llama = testing::tiny_llama();
    DecoderOptions wide = options(1, kReusePages);
    Rig one(llama, wide);
    const auto refused = one.engine().submit(reusing(one));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message,
              "a text that moves what it reuses needs room for 2 sequences, and this memory has it "
              "for 1");
    wide.n_sequences = 2;
    Rig two(llama, wide);
    EXPECT_GT(two.write(reusing(two)).usage.cached, 40u);
    // Beside another session that holds a text there is none for the fork: all is computed.
    wide.n_sequences = 3;
    Rig three(llama, wide);
    const SessionId other = three.engine().open_session();
    three.write(Rig::request(common, 0, other));
    EXPECT_GT(three.write(reusing(three)).usage.cached, 40u);
    const Text full = three.write(reusing(three));  // a third session
    EXPECT_FALSE(full.error);
    EXPECT_EQ(full.usage.cached, 0u);
}

}  // namespace
}  // namespace cellar
