#include "engine/chunk_reuse.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/decoding.h"
#include "engine/engine.h"
#include "engine/list_llama.h"
#include "engine/writing.h"
#include "memory/rows.h"

// Prompts whose parts a session holds elsewhere.

namespace cellar {
namespace {

using testing::Decoding;
using testing::greedy;
using testing::ListLlama;
using testing::open_model;
using testing::Text;
using testing::tiny_llama;

using Tokens = std::vector<Token>;

constexpr char kLlama[] = CELLAR_TEST_DATA "/models/tiny-llama.gguf";
constexpr uint32_t kPage = 8;

// No run of eight occurs in two of them, or twice in one, up to 100 tokens.
Tokens text_of(size_t n, uint32_t seed) {
    return testing::random_text(n, seed * 7919 + 17);
}

Tokens operator+(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// An engine and one session of it.
class Rig {
public:
    explicit Rig(const Model& model, uint32_t n_ctx = 256, KvType type_k = KvType::kF32,
                 uint32_t spare = Engine::shift_cells(kPage) + Engine::reuse_cells(kPage)) {
        DecoderOptions options;
        options.n_cells = n_ctx + spare;
        options.page_size = kPage;
        options.max_ubatch = 16;
        options.type_k = type_k;
        options.type_v = KvType::kF32;
        decoding_ = std::make_unique<Decoding>(model, options);
        auto engine =
            Engine::create(decoding_->decoder(), {n_ctx, model.info().n_vocab, 16, /*eog=*/{}});
        EXPECT_TRUE(engine) << engine.error().message;
        engine_ = *std::move(engine);
        session_ = engine_->open_session();
    }

    Request request(Tokens prompt, uint32_t n, uint32_t reuse_chunks) const {
        Request request = greedy(std::move(prompt), n);
        request.ignore_eos = true;
        request.session = session_;
        request.reuse_chunks = reuse_chunks;
        return request;
    }

    Text write(Request request) {
        Text text;
        auto id = engine_->submit(std::move(request));
        if (!id) {
            text.error = id.error();
            return text;
        }
        while (!engine_->idle()) {
            for (const Event& event : engine_->step()) {
                text.take(event);
            }
        }
        return text;
    }

    Text write(const Tokens& prompt, uint32_t n, uint32_t reuse_chunks) {
        return write(request(prompt, n, reuse_chunks));
    }

    // The only sequence: nothing may be left of forks.
    SeqId only() {
        const auto seqs = memory().cells().sequences();
        EXPECT_EQ(seqs.size(), 1u);
        return seqs.at(0);
    }

    Memory& memory() { return decoding_->memory(); }
    Engine& engine() { return *engine_; }
    Decoding& decoding() { return *decoding_; }
    SessionId session() const { return session_; }

private:
    std::unique_ptr<Decoding> decoding_;
    std::unique_ptr<Engine> engine_;
    SessionId session_{0};
};

// The values of layer 0 by token: they depend on nothing else, least of all on positions.
class Values {
public:
    Values() {
        Rig rig(tiny_llama());
        for (Token token = 0; token < 128; token++) {
            rig.decoding().append(SeqId{50}, {token});
            const Cells& cells = rig.memory().cells();
            values_.push_back(row(rig.memory(), cells.spans(SeqId{50}, 0).back(), 0));
            EXPECT_TRUE(rig.memory().seq_rm(SeqId{50}, 0, kOpen));
        }
    }

    static std::vector<float> row(const Memory& memory, const Span& span, uint32_t i) {
        std::vector<float> numbers(row_values(memory, 0, Side::kValues));
        const PoolRows one{value(span.page) * kPage + span.first + i, 1};
        read_rows(memory, 0, Side::kValues, {&one, 1}, std::as_writable_bytes(std::span(numbers)));
        return numbers;
    }

    // The tokens whose cells `seq` sees, which must stand at 0, 1, 2 and so on.
    Tokens seen(const Memory& memory, SeqId seq) const {
        const Cells& cells = memory.cells();
        Tokens tokens;
        for (const Span& span : cells.spans(seq, 0)) {
            for (uint32_t i = 0; i < span.count; i++) {
                EXPECT_EQ(cells.pos(0, span, i), static_cast<Pos>(tokens.size()));
                tokens.push_back(token_of(row(memory, span, i)));
            }
        }
        return tokens;
    }

private:
    Token token_of(const std::vector<float>& numbers) const {
        for (size_t token = 0; token < values_.size(); token++) {
            float most = 0;
            for (size_t i = 0; i < numbers.size(); i++) {
                most = std::max(most, std::abs(numbers[i] - values_[token][i]));
            }
            if (most < 1e-4f) {
                return static_cast<Token>(token);
            }
        }
        return -1;
    }

    std::vector<std::vector<float>> values_;
};

const Values& values() {
    static const Values kValues;
    return kValues;
}

// What the likeliest text is by attention in double precision, when of `held` the runs stay as they
// are at their new places and all else of `prompt` is computed.
Tokens judged(const Tokens& held, const Tokens& prompt, const std::vector<CommonRun>& runs,
              size_t n) {
    const ListLlama llama(kLlama);
    ListLlama::List before, list;
    ListLlama::Numbers logits;
    for (const Token token : held) {
        llama.append(before, token);
    }
    for (size_t at = 0; at < prompt.size();) {
        const auto run =
            std::find_if(runs.begin(), runs.end(), [at](const CommonRun& r) { return r.to == at; });
        if (run == runs.end()) {
            logits = llama.append(list, prompt[at++]);
            continue;
        }
        for (size_t i = 0; i < run->n; i++, at++) {
            list.push_back({static_cast<Pos>(at), before[run->from + i].kv});
        }
    }
    Tokens tokens;
    while (true) {
        tokens.push_back(
            static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
        if (tokens.size() == n) {
            return tokens;
        }
        logits = llama.append(list, tokens.back());
    }
}

TEST(ChunkReuse, TextIsTheLikeliestOfWhatWasMoved) {
    const Tokens a = text_of(11, 1), b = text_of(13, 2), c = text_of(20, 3), end = text_of(3, 4);
    struct Case {
        const char* name;
        Tokens held, prompt;
        size_t kept;
    };
    const Case cases[] = {{"deleted", a + b + c, a + c + end, 31},
                          {"inserted", a + c, a + b + c + end, 31},
                          {"both", a + b + c, end + b + text_of(10, 5) + c + end, 33},
                          {"exchanged", a + b + c, a + text_of(13, 6) + c + end, 31},
                          {"only its end", a + b + c, c + end, 20}};
    for (const Case& each : cases) {
        for (const KvType type : {KvType::kF32, KvType::kBf16}) {
            SCOPED_TRACE(each.name);
            Rig rig(tiny_llama(), 256, type);
            rig.write(each.held, 0, 0);
            const Text text = rig.write(each.prompt, 12, 8);
            ASSERT_FALSE(text.error) << text.error->message;
            EXPECT_EQ(text.usage.cached, each.kept);
            EXPECT_EQ(text.usage.computed, each.prompt.size() - each.kept + 11);
            Tokens whole = each.prompt + text.tokens;
            whole.pop_back();
            EXPECT_EQ(values().seen(rig.memory(), rig.only()), whole);
            if (type == KvType::kF32) {
                const auto runs = common_runs(each.held, each.prompt, 8, kReuseJoints);
                EXPECT_EQ(text.tokens, judged(each.held, each.prompt, runs, 12));
            }
        }
    }
}

TEST(ChunkReuse, RunsOfFewerTokensAreComputed) {
    const Tokens a = text_of(20, 1), b = text_of(9, 2), c = text_of(16, 3), end = text_of(2, 4);
    for (const uint32_t at_least : {16u, 17u, 0u}) {
        Rig rig(tiny_llama());
        rig.write(a + b + c, 0, 0);
        const Text text = rig.write(a + c + end, 4, at_least);
        EXPECT_EQ(text.usage.cached, at_least == 16 ? 36u : 20u);
        EXPECT_EQ(text.usage.computed, 38 - text.usage.cached + 3);
    }
}

TEST(ChunkReuse, OffIsExact) {
    const Tokens a = text_of(20, 1), b = text_of(9, 2), c = text_of(30, 3);
    Rig rig(tiny_llama()), fresh(tiny_llama());
    rig.write(a + b + c, 0, 0);
    EXPECT_EQ(rig.write(a + c, 20, 0).tokens, fresh.write(a + c, 20, 0).tokens);
}

// A model with states cannot move parts of them: the beginning is used, and no more is asked of the
// memory.
TEST(ChunkReuse, WithStatesOnlyTheBeginningIsUsed) {
    const auto model = open_model(CELLAR_TEST_DATA "/models/tiny-mamba.gguf");
    Rig rig(*model, 128, KvType::kF32, 0);
    const Tokens a = text_of(20, 1), b = text_of(9, 2);
    rig.write(a + b, 0, 0);
    const Text text = rig.write(b + a, 5, 4);
    ASSERT_FALSE(text.error) << text.error->message;
    EXPECT_EQ(text.usage.cached, 0u);
    EXPECT_EQ(text.usage.computed, 29u + 4u);
}

// Windows that have passed what would have to be kept: all is computed, and right.
TEST(ChunkReuse, WhereWindowsHavePassedItIsComputed) {
    const auto model = open_model(CELLAR_TEST_DATA "/models/tiny-gemma3.gguf");
    const Tokens a = text_of(60, 1), b = text_of(40, 2), c = text_of(60, 3), end = text_of(2, 4);
    Rig rig(*model), fresh(*model);
    rig.write(a + b + c, 0, 0);
    // Inserted behind a: its window is no longer there.
    const Tokens inserted = a + end + b + c + end;
    const Text computed = rig.write(inserted, 10, 16);
    ASSERT_FALSE(computed.error) << computed.error->message;
    EXPECT_EQ(computed.usage.cached, 0u);
    EXPECT_EQ(computed.tokens, fresh.write(inserted, 10, 0).tokens);
    // Deleted before what the window still covers: moved.
    const Text moved = rig.write(a + c + end + computed.tokens + end, 10, 16);
    ASSERT_FALSE(moved.error) << moved.error->message;
    EXPECT_GE(moved.usage.cached, 120u);
}

TEST(ChunkReuse, CancelledHalfwayTheSessionHoldsWhatItHas) {
    const Tokens a = text_of(11, 1), b = text_of(60, 2), c = text_of(30, 3), end = text_of(3, 4);
    Rig rig(tiny_llama());
    rig.write(a + c, 0, 0);
    const auto id = rig.engine().submit(rig.request(a + b + c + end, 5, 8));
    ASSERT_TRUE(id);
    rig.engine().step();
    EXPECT_EQ(rig.memory().cells().sequences().size(), 2u);
    rig.engine().cancel(*id);
    rig.engine().step();
    EXPECT_TRUE(rig.engine().idle());
    EXPECT_EQ(rig.engine().held(rig.session()), 11u + 16u);
    const Tokens whole = a + b;
    EXPECT_EQ(values().seen(rig.memory(), rig.only()), Tokens(whole.begin(), whole.begin() + 27));
    ASSERT_TRUE(rig.engine().close_session(rig.session()));
    EXPECT_TRUE(rig.memory().cells().sequences().empty());
}

TEST(ChunkReuse, NeedsPagesForWhatDoesNotFollowOn) {
    Rig rig(tiny_llama(), 64, KvType::kF32, kPage);
    const Text text = rig.write(text_of(10, 1), 1, 8);
    ASSERT_TRUE(text.error);
    EXPECT_EQ(text.error->message,
              "a context of 64 tokens that moves what it reuses needs a memory of 136 cells, not "
              "72");
}

// Whatever is edited, again and again in one session: the sequence is the prompt, what was not kept
// was computed, and the memory never runs out.
RC_GTEST_PROP(ChunkReuse, EditedTextsAreWholeAndFit, ()) {
    Rig rig(tiny_llama(), 128);
    Tokens text = text_of(60, 1);
    rig.write(text, 0, 0);
    const int n_turns = *rc::gen::inRange(1, 8);
    for (int turn = 0; turn < n_turns; turn++) {
        const int n_edits = *rc::gen::inRange(1, 4);
        for (int i = 0; i < n_edits; i++) {
            const auto at = *rc::gen::inRange<ptrdiff_t>(0, static_cast<ptrdiff_t>(text.size()));
            const auto n = *rc::gen::inRange<ptrdiff_t>(0, 25);
            if (*rc::gen::arbitrary<bool>()) {
                const Tokens more = text_of(static_cast<size_t>(n), *rc::gen::inRange(10u, 90u));
                text.insert(text.begin() + at, more.begin(), more.end());
            } else {
                const auto rest = static_cast<ptrdiff_t>(text.size()) - at;
                text.erase(text.begin() + at, text.begin() + at + std::min(rest, n));
            }
        }
        text = text + text_of(1, 100 + static_cast<uint32_t>(turn));
        text.resize(std::min<size_t>(text.size(), 128));
        Request request = rig.request(text, *rc::gen::inRange(0u, 40u), *rc::gen::inRange(0u, 12u));
        const bool shifts = *rc::gen::arbitrary<bool>();
        if (shifts) {
            request.context_shift = 4;
        }
        const Text reply = rig.write(std::move(request));
        RC_ASSERT(!reply.error);
        Tokens held = text + reply.tokens;
        held.erase(held.begin() + 4 * shifts, held.begin() + 4 * shifts + reply.usage.dropped);
        held.resize(rig.engine().held(rig.session()));
        RC_ASSERT(values().seen(rig.memory(), rig.only()) == held);
        const uint64_t in_pages = (held.size() + kPage - 1) / kPage;
        RC_ASSERT(cells_held(rig.memory(), rig.only()) <=
                  (in_pages + kReusePages + kShiftPages) * kPage);
        const size_t generated = reply.tokens.empty() ? 0 : reply.tokens.size() - 1;
        RC_ASSERT(size_t{reply.usage.computed} == text.size() - reply.usage.cached + generated);
        text = held;
        if (text.size() < 20) {
            text = text + text_of(30, 7);
        }
    }
}

}  // namespace
}  // namespace cellar
