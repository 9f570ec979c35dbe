#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/decoding.h"
#include "engine/writing.h"

namespace cellar {
namespace {

using testing::Decoding;
using testing::greedy;
using testing::prompt_of;
using testing::Text;
using testing::tiny_llama;

using Tokens = std::vector<Token>;

constexpr uint32_t kVocab = 128;

// An engine on the tiny model, with verbs.
class EngineTest : public ::testing::Test {
protected:
    void SetUp() override { make(256, 256); }

    void make(uint32_t n_cells, uint32_t n_ctx, uint32_t step_tokens = 16, Tokens eog = {}) {
        engine_.reset();
        texts_.clear();
        DecoderOptions options;
        options.n_cells = n_cells;
        options.page_size = 8;
        options.max_ubatch = 16;
        options.type_k = KvType::kF32;
        options.type_v = KvType::kF32;
        decoding_ = std::make_unique<Decoding>(tiny_llama(), options);
        auto engine = Engine::create(decoding_->decoder(), {n_ctx, kVocab, step_tokens, eog});
        ASSERT_TRUE(engine) << engine.error().message;
        engine_ = *std::move(engine);
    }

    RequestId submit(Request request) {
        auto id = engine_->submit(std::move(request));
        EXPECT_TRUE(id) << id.error().message;
        return *id;
    }

    void step() {
        for (const Event& event : engine_->step()) {
            Text& text = texts_[event.request];
            EXPECT_FALSE(text.stop || text.error) << "an event after the last";
            text.take(event);
        }
    }

    void run() {
        for (int i = 0; i < 10000 && !engine_->idle(); i++) {
            step();
        }
        EXPECT_TRUE(engine_->idle());
    }

    // One request by itself, to its end.
    Text write(Request request) {
        const RequestId id = submit(std::move(request));
        run();
        return texts_[id];
    }

    bool memory_is_empty() { return decoding_->memory().cells().sequences().empty(); }

    std::unique_ptr<Decoding> decoding_;
    std::unique_ptr<Engine> engine_;
    std::map<RequestId, Text> texts_;
};

TEST_F(EngineTest, GreedyTextIsTheLikeliestTokenEachTime) {
    const Tokens prompt = prompt_of(40);
    const Text text = write(greedy(prompt, 10));
    // The same, one token after the other.
    const SeqId seq{7};
    testing::Row row = decoding_->append(seq, prompt);
    for (const Token token : text.tokens) {
        EXPECT_EQ(token, std::max_element(row.begin(), row.end()) - row.begin());
        row = decoding_->append(seq, {token});
    }
    EXPECT_EQ(text.tokens.size(), 10u);
}

TEST_F(EngineTest, StopsAtTheNumberOfTokensAskedFor) {
    for (const uint32_t n : {0u, 1u, 20u}) {
        const Text text = write(greedy(prompt_of(20), n));
        EXPECT_EQ(text.tokens.size(), n);
        EXPECT_EQ(text.stop, StopReason::kLength);
        EXPECT_EQ(text.usage.prompt, 20u);
        EXPECT_EQ(text.usage.generated, n);
        EXPECT_EQ(text.usage.computed, n == 0 ? 20 : 19 + n);  // the last token is not computed
        EXPECT_TRUE(memory_is_empty());
    }
}

TEST_F(EngineTest, StopsWhenTheContextIsFull) {
    make(64, 64);
    for (const size_t n : {1u, 40u, 63u, 64u}) {
        const Text text = write(greedy(prompt_of(n), std::nullopt));
        EXPECT_EQ(text.tokens.size(), 64 - n + 1);
        EXPECT_EQ(text.stop, StopReason::kLength);
    }
}

TEST_F(EngineTest, StopsAtEndOfGenerationWithoutHandingItOut) {
    Request request = greedy(prompt_of(30), 20);
    request.sampling.temperature = 1.0f;
    const Tokens all = write(request).tokens;
    const auto end = std::find_if(all.begin() + 3, all.end(), [&](Token token) {
        return std::find(all.begin(), all.begin() + 3, token) == all.begin() + 3;
    });
    ASSERT_NE(end, all.end());
    make(256, 256, 16, {*end});
    const Text text = write(request);
    EXPECT_EQ(text.stop, StopReason::kEos);
    EXPECT_EQ(text.tokens, Tokens(all.begin(), std::find(all.begin(), all.end(), *end)));

    request.ignore_eos = true;
    const Text longer = write(request);
    EXPECT_EQ(longer.tokens, all);
    EXPECT_EQ(longer.stop, StopReason::kLength);
}

TEST_F(EngineTest, TogetherRequestsWriteWhatTheyWriteAlone) {
    std::vector<Tokens> alone;
    const auto request = [](int i) {
        Request r = greedy(prompt_of(5 + 9 * static_cast<size_t>(i), i), 12);
        r.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
        r.sampling.seed = static_cast<uint64_t>(i);
        return r;
    };
    for (int i = 0; i < 5; i++) {
        alone.push_back(write(request(i)).tokens);
    }
    std::vector<RequestId> ids;
    for (int i = 0; i < 5; i++) {
        ids.push_back(submit(request(i)));
        step();  // they join while the ones before are at work
    }
    run();
    for (size_t i = 0; i < 5; i++) {
        EXPECT_EQ(texts_[ids[i]].tokens, alone[i]) << "request " << i;
    }
    EXPECT_TRUE(memory_is_empty());
}

TEST_F(EngineTest, LongPromptDoesNotHaltAnotherText) {
    const RequestId writing = submit(greedy(prompt_of(4), 20));
    step();
    submit(greedy(prompt_of(100), 1));
    for (size_t n = 2; n <= 6; n++) {
        step();
        EXPECT_EQ(texts_[writing].tokens.size(), n);
    }
    run();
}

TEST_F(EngineTest, CancelledRequestsEndInTheNextStep) {
    make(64, 64);
    const RequestId writing = submit(greedy(prompt_of(4), 20));
    const RequestId reading = submit(greedy(prompt_of(30), 1));
    const RequestId waiting = submit(greedy(prompt_of(40), 20));
    step();
    ASSERT_EQ(texts_[writing].tokens.size(), 1u);
    for (const RequestId id : {writing, reading, waiting}) {
        engine_->cancel(id);
    }
    step();
    for (const RequestId id : {writing, reading, waiting}) {
        EXPECT_EQ(texts_[id].stop, StopReason::kCancelled);
    }
    EXPECT_TRUE(engine_->idle());
    EXPECT_TRUE(memory_is_empty());
    engine_->cancel(writing);  // it ended already: nothing happens
    engine_->cancel(RequestId{999});
    EXPECT_EQ(write(greedy(prompt_of(4), 3)).tokens.size(), 3u);
}

TEST_F(EngineTest, RequestsWaitUntilThereIsRoomForAllOfTheirText) {
    make(64, 64);
    std::vector<RequestId> ids;
    for (int i = 0; i < 4; i++) {
        ids.push_back(submit(greedy(prompt_of(10, i), 40)));
    }
    run();
    for (const RequestId id : ids) {
        EXPECT_EQ(texts_[id].tokens.size(), 40u);
        EXPECT_EQ(texts_[id].stop, StopReason::kLength);
    }
}

TEST_F(EngineTest, RefusesWhatMakesNoSense) {
    make(64, 64);
    const auto error = [this](Request request) {
        auto id = engine_->submit(std::move(request));
        EXPECT_FALSE(id);
        return id ? Error{} : id.error();
    };
    EXPECT_EQ(error(greedy({}, 1)).message, "the prompt is empty");
    EXPECT_EQ(error(greedy(prompt_of(65), 1)).message,
              "the prompt has 65 tokens, but the context has room for 64");
    EXPECT_EQ(error(greedy({3, 128}, 1)).message,
              "128 is no token: the vocabulary has 128, counted from 0");
    EXPECT_EQ(error(greedy({-1}, 1)).code, Code::kInvalidArgument);
    Request request = greedy({1}, 1);
    request.sampling.top_p = 2.0f;
    EXPECT_EQ(error(request).message, "top-p is 2; it must be from 0 to 1");
    request = greedy({1}, 1);
    request.session = SessionId{5};
    EXPECT_EQ(error(request).code, Code::kBadRange);
    EXPECT_TRUE(engine_->idle());
    EXPECT_FALSE(Engine::create(decoding_->decoder(), {65, kVocab, 16, {}}));
    EXPECT_FALSE(Engine::create(decoding_->decoder(), {0, kVocab, 16, {}}));
    EXPECT_FALSE(Engine::create(decoding_->decoder(), {64, kVocab, 0, {}}));
}

TEST_F(EngineTest, FailedStepEndsItsRequestsAndNoOthers) {
    make(64, 64);
    // Somebody else takes most of the memory, behind the engine's back.
    decoding_->append(SeqId{1000}, prompt_of(50));
    const Text text = write(greedy(prompt_of(30), 1));
    ASSERT_TRUE(text.error);
    EXPECT_EQ(text.error->code, Code::kNoRoom);
    ASSERT_TRUE(decoding_->memory().seq_rm(SeqId{1000}, 0, kOpen));
    EXPECT_TRUE(memory_is_empty());
    EXPECT_EQ(write(greedy(prompt_of(30), 3)).tokens.size(), 3u);
}

TEST_F(EngineTest, SessionComputesOnlyWhatIsNew) {
    const SessionId session = engine_->open_session();
    Request request = greedy(prompt_of(30), 5);
    request.session = session;
    const Text first = write(request);
    EXPECT_EQ(first.usage.cached, 0u);
    EXPECT_EQ(engine_->held(session), 34u);  // the last token needed no cell

    request.prompt.insert(request.prompt.end(), first.tokens.begin(), first.tokens.end());
    request.prompt.push_back(9);
    const Text second = write(request);
    EXPECT_EQ(second.usage.prompt, 36u);
    EXPECT_EQ(second.usage.cached, 34u);
    EXPECT_EQ(second.usage.computed, 2u + 4u);

    Request fresh = request;
    fresh.session.reset();
    EXPECT_EQ(write(fresh).tokens, second.tokens);
}

TEST_F(EngineTest, SessionRewindsToWhatTheNewPromptShares) {
    const SessionId session = engine_->open_session();
    Request request = greedy(prompt_of(30), 5);
    request.session = session;
    write(request);
    request.prompt[20] = (request.prompt[20] + 1) % static_cast<Token>(kVocab);
    const Text edited = write(request);
    EXPECT_EQ(edited.usage.cached, 20u);
    Request fresh = request;
    fresh.session.reset();
    EXPECT_EQ(write(fresh).tokens, edited.tokens);

    // The same prompt again: its last token is computed anew, for its logits.
    const Text again = write(request);
    EXPECT_EQ(again.usage.cached, 29u);
    EXPECT_EQ(again.tokens, edited.tokens);
}

TEST_F(EngineTest, CancelledRequestLeavesASessionWhatItComputed) {
    const SessionId session = engine_->open_session();
    Request request = greedy(prompt_of(100), 5);
    request.session = session;
    const RequestId id = submit(request);
    step();
    engine_->cancel(id);
    run();
    EXPECT_EQ(engine_->held(session), 16u);
    const Text text = write(request);
    EXPECT_EQ(text.usage.cached, 16u);
    Request fresh = request;
    fresh.session.reset();
    EXPECT_EQ(write(fresh).tokens, text.tokens);
}

TEST_F(EngineTest, SessionHasOneRequestAtATimeUntilItIsClosed) {
    const SessionId session = engine_->open_session();
    Request request = greedy(prompt_of(10), 3);
    request.session = session;
    submit(request);
    EXPECT_EQ(engine_->submit(request).error().code, Code::kBusy);
    EXPECT_EQ(engine_->close_session(session).error().code, Code::kBusy);
    run();
    EXPECT_TRUE(engine_->close_session(session));
    EXPECT_TRUE(memory_is_empty());
    EXPECT_EQ(engine_->close_session(session).error().code, Code::kBadRange);
    EXPECT_EQ(engine_->held(session), 0u);
}

TEST_F(EngineTest, RequestThatIdleSessionsLeaveNoRoomForIsAnError) {
    make(64, 64);
    Request request = greedy(prompt_of(30), 3);
    request.session = engine_->open_session();
    write(request);
    const Text text = write(greedy(prompt_of(40), 1));
    ASSERT_TRUE(text.error);
    EXPECT_EQ(text.error->code, Code::kNoRoom);
    EXPECT_EQ(text.error->room->needed, 48u);  // 41 cells in pages of 8
    EXPECT_EQ(text.error->room->free, 32u);    // 64 without the session's 30 + 3 - 1
    ASSERT_TRUE(engine_->close_session(*request.session));
    EXPECT_EQ(write(greedy(prompt_of(40), 1)).tokens.size(), 1u);
}

TEST_F(EngineTest, FailedRequestEmptiesItsSession) {
    make(64, 64);
    const SessionId session = engine_->open_session();
    Request request = greedy(prompt_of(10), 3);
    request.session = session;
    write(request);
    decoding_->append(SeqId{1000}, prompt_of(40));
    request.prompt = prompt_of(40);
    ASSERT_TRUE(write(request).error);
    EXPECT_EQ(engine_->held(session), 0u);
    ASSERT_TRUE(decoding_->memory().seq_rm(SeqId{1000}, 0, kOpen));
    EXPECT_TRUE(memory_is_empty());
    EXPECT_EQ(write(request).tokens.size(), 3u);
}

}  // namespace
}  // namespace cellar
