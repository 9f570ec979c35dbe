#include "engine/context_shift.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/decoding.h"
#include "engine/engine.h"
#include "engine/list_llama.h"
#include "engine/writing.h"

// Texts that outlive their context.

namespace cellar {
namespace {

using testing::Decoding;
using testing::ListLlama;
using testing::open_model;
using testing::prompt_of;
using testing::Text;
using testing::tiny_llama;

using Tokens = std::vector<Token>;

constexpr char kLlama[] = CELLAR_TEST_DATA "/models/tiny-llama.gguf";
constexpr uint32_t kPage = 8;

const Model& tiny_gemma3() {
    static const auto kModel = open_model(CELLAR_TEST_DATA "/models/tiny-gemma3.gguf");
    return *kModel;
}

class ContextShiftTest : public ::testing::Test {
protected:
    void make(const Model& model, uint32_t n_ctx) {
        make(model, n_ctx, n_ctx + Engine::shift_cells(kPage));
    }

    void make(const Model& model, uint32_t n_ctx, uint32_t n_cells) {
        engine_.reset();
        DecoderOptions options;
        options.n_cells = n_cells;
        options.page_size = kPage;
        options.max_ubatch = 16;
        options.type_k = options.type_v = KvType::kF32;
        decoding_ = std::make_unique<Decoding>(model, options);
        auto engine =
            Engine::create(decoding_->decoder(), {n_ctx, model.info().n_vocab, 16, /*eog=*/{}});
        ASSERT_TRUE(engine) << engine.error().message;
        engine_ = *std::move(engine);
    }

    static Request greedy(Tokens prompt, std::optional<uint32_t> max_tokens,
                          std::optional<uint32_t> keep) {
        Request request = testing::greedy(std::move(prompt), max_tokens);
        request.context_shift = keep;
        return request;
    }

    // Runs a request to its end, which must come with its last token.
    Text write(Request request) {
        Text text;
        const size_t enough = 2 * request.prompt.size() + 2 * request.max_tokens.value_or(1000);
        auto id = engine_->submit(std::move(request));
        if (!id) {
            text.error = id.error();
            return text;
        }
        for (size_t i = 0; i < enough && !engine_->idle(); i++) {
            for (const Event& event : engine_->step()) {
                EXPECT_FALSE(text.stop || text.error) << "an event after the last";
                text.take(event);
            }
            look_at_deltas();
        }
        EXPECT_TRUE(engine_->idle());
        return text;
    }

    void look_at_deltas() {
        const Cells& cells = decoding_->memory().cells();
        for (const SeqId seq : cells.sequences()) {
            for (uint32_t group = 0; group < cells.n_groups(); group++) {
                std::set<Pos> deltas;
                for (const Span& span : cells.spans(seq, group)) {
                    deltas.insert(span.delta);
                }
                most_deltas_ = std::max(most_deltas_, deltas.size());
            }
        }
    }

    // The likeliest text behind `prompt` by attention in double precision, where full contexts drop
    // the older half of what is behind the first `keep` tokens.
    static Tokens judged(const Tokens& prompt, size_t n, size_t n_ctx, size_t keep) {
        const ListLlama llama(kLlama);
        ListLlama::List list;
        ListLlama::Numbers logits;
        for (const Token token : prompt) {
            logits = llama.append(list, token);
        }
        Tokens tokens;
        while (true) {
            const auto best = std::max_element(logits.begin(), logits.end());
            tokens.push_back(static_cast<Token>(best - logits.begin()));
            if (tokens.size() == n) {
                return tokens;
            }
            if (list.size() == n_ctx) {
                const auto dropped = static_cast<ptrdiff_t>((n_ctx - keep + 1) / 2);
                const auto first = list.begin() + static_cast<ptrdiff_t>(keep);
                for (auto cell = list.erase(first, first + dropped); cell != list.end(); ++cell) {
                    cell->pos -= static_cast<Pos>(dropped);
                }
            }
            logits = llama.append(list, tokens.back());
        }
    }

    std::unique_ptr<Decoding> decoding_;
    std::unique_ptr<Engine> engine_;
    size_t most_deltas_ = 0;
};

class ScenarioR19 : public ContextShiftTest {};

TEST_F(ScenarioR19, GenerationAlwaysEnds) {
    make(tiny_llama(), 64);
    const Text shifted = write(greedy(prompt_of(50), 512, 4));
    EXPECT_EQ(shifted.tokens.size(), 512u);
    EXPECT_EQ(shifted.stop, StopReason::kLength);
    EXPECT_EQ(shifted.usage.computed, 50u + 511u);  // nothing was computed twice

    // Off: the last token needs no cell, so that there are 15.
    const Text off = write(greedy(prompt_of(50), 512, std::nullopt));
    EXPECT_EQ(off.tokens.size(), 15u);
    EXPECT_EQ(off.stop, StopReason::kLength);
    EXPECT_TRUE(std::equal(off.tokens.begin(), off.tokens.end(), shifted.tokens.begin()));

    for (const std::optional<uint32_t> keep : {std::optional<uint32_t>(), {4u}}) {
        const Text refused = write(greedy(prompt_of(65), 512, keep));
        ASSERT_TRUE(refused.error);
        EXPECT_EQ(refused.error->message,
                  "the prompt has 65 tokens, but the context has room for 64");
    }
    EXPECT_TRUE(decoding_->memory().cells().sequences().empty());
}

TEST_F(ContextShiftTest, TextIsTheLikeliestOfWhatIsLeft) {
    for (const uint32_t keep : {0u, 5u}) {
        make(tiny_llama(), 40);
        const Tokens prompt = prompt_of(30, static_cast<int>(keep));
        EXPECT_EQ(write(greedy(prompt, 60, keep)).tokens, judged(prompt, 60, 40, keep));
    }
}

TEST_F(ContextShiftTest, KeepsAsMuchAsItIsTold) {
    for (const uint32_t keep : {0u, 1u, 7u, 8u, 30u, 62u, 63u}) {
        make(tiny_llama(), 64);
        const Text text = write(greedy(prompt_of(64), 150, keep));
        EXPECT_EQ(text.tokens.size(), 150u) << keep;
        EXPECT_FALSE(text.error) << text.error->message;
    }
    EXPECT_EQ(write(greedy(prompt_of(64), 150, 64)).error->code, Code::kInvalidArgument);
}

TEST_F(ContextShiftTest, TwentyThousandTokensEndOnTime) {
    for (const Model* model : {&tiny_llama(), &tiny_gemma3()}) {
        make(*model, 512);
        Request request = greedy(prompt_of(100), 20000, 4);
        request.sampling.temperature = 1.0f;
        const Text text = write(std::move(request));
        EXPECT_EQ(text.tokens.size(), 20000u);
        EXPECT_EQ(text.stop, StopReason::kLength);
        EXPECT_EQ(text.usage.computed, 100u + 19999u);
        EXPECT_LE(most_deltas_, 3u);
        EXPECT_GE(most_deltas_, 2u);
    }
}

// Deltas of somebody else's making leave a shift no room to re-encode: what is left of the text is
// computed again, to the same end.
TEST_F(ContextShiftTest, ShortOfRoomItComputesAgain) {
    make(tiny_llama(), 64);
    const SeqId seq{9};
    decoding_->append(seq, prompt_of(64));
    decoding_->append(SeqId{10}, prompt_of(16));  // 1 page is free, 2 more will be, 5 are needed
    Memory& memory = decoding_->memory();
    for (Pos pos = 60; pos > 53; pos--) {
        ASSERT_TRUE(memory.seq_add(seq, pos, kOpen, 1));
    }
    ASSERT_TRUE(memory.pending().empty());
    EXPECT_EQ(drop_tokens(memory, seq, 64, 4, 20), 4u);
    EXPECT_EQ(memory.seq_pos_max(seq), 3);
}

TEST_F(ContextShiftTest, RefusedBeforeItBegins) {
    make(tiny_llama(), 64, 64 + kPage);
    const Text text = write(greedy(prompt_of(10), 1, 4));
    ASSERT_TRUE(text.error);
    EXPECT_EQ(text.error->message,
              "a context of 64 tokens that shifts needs a memory of 80 cells, not 72");
}

TEST_F(ContextShiftTest, SessionGoesOnBeyondItsContext) {
    make(tiny_llama(), 64);
    Request request = greedy(prompt_of(30), 20, 4);
    request.session = engine_->open_session();
    for (int turn = 0; turn < 30; turn++) {
        const Text text = write(request);
        ASSERT_FALSE(text.error) << turn << ": " << text.error->message;
        EXPECT_EQ(text.tokens.size(), 20u);
        EXPECT_EQ(text.usage.computed, text.usage.prompt - text.usage.cached + 19u);
        EXPECT_EQ(engine_->held(*request.session), text.usage.prompt + 19u - text.usage.dropped);
        Tokens& next = request.prompt;
        next.insert(next.end(), text.tokens.begin(), text.tokens.end());
        next.erase(next.begin() + 4, next.begin() + 4 + text.usage.dropped);
        const Tokens more = prompt_of(turn == 20 ? 50 : 7, turn);
        next.insert(next.end(), more.begin(), more.end());
    }
    request.prompt.resize(200, 5);
    EXPECT_EQ(write(request).error->code, Code::kBadRange);
    ASSERT_TRUE(engine_->close_session(*request.session));
    EXPECT_TRUE(decoding_->memory().cells().sequences().empty());
    // All of the memory is free again.
    EXPECT_EQ(write(greedy(prompt_of(50), 100, 4)).tokens.size(), 100u);
}

// A session whose requests keep less and less leaves a joint behind each time.
TEST_F(ContextShiftTest, RequestsOfASessionMayKeepLessAndLess) {
    for (const uint32_t n_ctx : {32u, 64u, 128u}) {
        make(tiny_llama(), n_ctx);
        const SessionId session = engine_->open_session();
        Tokens text = testing::prompt_of(n_ctx - 3);
        for (uint32_t keep = n_ctx - 6; keep > 0; keep -= std::min(keep, 5u)) {
            Request request = greedy(text, 7, keep);
            request.session = session;
            const Text written = write(std::move(request));
            ASSERT_FALSE(written.error) << n_ctx << " " << keep << " " << written.error->message;
            ASSERT_EQ(written.tokens.size(), 7u);
            text.insert(text.end(), written.tokens.begin(), written.tokens.end());
            text.erase(text.begin() + keep, text.begin() + keep + written.usage.dropped);
        }
    }
}

}  // namespace
}  // namespace cellar
