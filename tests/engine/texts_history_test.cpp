#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/decoding.h"
#include "engine/engine.h"
#include "state/sink.h"
#include "state/source.h"

// Random histories of engines whose pools hold just what they must: no step finds them full.

namespace cellar {
namespace {

using testing::Decoding;
using testing::joined;
using testing::open_model;
using testing::random_text;

using Tokens = std::vector<Token>;

constexpr uint32_t kVocab = 128;

const Model& model_of(int i) {
    static const std::unique_ptr<Model> kModels[] = {
        open_model(CELLAR_TEST_DATA "/models/tiny-gemma3.gguf"),
        open_model(CELLAR_TEST_DATA "/models/tiny-mamba.gguf"),
        open_model(CELLAR_TEST_DATA "/models/tiny-lfm2.gguf")};
    return *kModels[i];
}

template <class T>
T range(T low, T high) {  // both included
    return *rc::gen::inRange<T>(low, static_cast<T>(high + 1));
}

bool flip() {
    return *rc::gen::arbitrary<bool>();
}

class History {
public:
    explicit History(const Model& model) {
        DecoderOptions options;
        options.page_size = uint32_t{1} << range(0, 5);
        options.max_ubatch = range(1u, 40u);
        options.type_k = options.type_v = KvType::kF32;
        options.n_rollback = range(0u, 5u);
        options.max_checkpoints = range(0u, 2u);
        options.n_sequences = range(1u, 4u);
        options.n_states = 0;
        options.spare_pages =
            *rc::gen::element(0u, kShiftPages, kReusePages, kShiftPages + kReusePages);
        n_ctx_ = range(10u, flip() ? 50u : 200u);  // the window of tiny-gemma3 is 32
        options.n_cells = n_ctx_ + Engine::shift_cells(options.page_size) +
                          Engine::reuse_cells(options.page_size) + range(0u, 6 * n_ctx_);
        checkpoints_ = options.max_checkpoints > 0;
        decoding_ = std::make_unique<Decoding>(model, options);
        engine_ =
            Engine::create(decoding_->decoder(),
                           {.n_ctx = n_ctx_, .n_vocab = kVocab, .step_tokens = range(1u, 60u)})
                .value();
        for (int i = range(1, 4); i > 0; i--) {
            sessions_.push_back({engine_->open_session(), {}});
        }
    }

    void act() {
        switch (range(0, 9)) {
            case 0:
            case 1:
            case 2:
                return submit();
            case 3:
                return cancel();
            case 4:
                return reopen();
            case 5:
                return checkpoint();
            case 6:
                return save_and_load();
            default:
                for (int i = range(1, 12); i > 0; i--) {
                    step();
                }
        }
    }

    // All ends, and leaves nothing behind: a whole context can be filled again.
    void finish() {
        run();
        for (const auto& session : sessions_) {
            RC_ASSERT(engine_->close_session(session.id));
        }
        RC_ASSERT(memory().cells().sequences().empty());
        for (size_t i = 0; i < decoding_->decoder().max_texts(); i++) {
            Request request;
            request.prompt = random_text(n_ctx_ / 2, static_cast<uint32_t>(i));
            request.ignore_eos = true;
            RC_ASSERT(engine_->submit(std::move(request)));
        }
        const size_t before = errors_;
        run();
        RC_ASSERT(errors_ == before);
    }

private:
    struct Held {
        SessionId id{0};
        Tokens text;  // what was last submitted
    };

    Memory& memory() { return decoding_->memory(); }

    void submit() {
        Request request;
        Tokens text = random_text(range<size_t>(1, n_ctx_), range(0u, 9u));
        if (flip()) {
            Held& session = sessions_[range<size_t>(0, sessions_.size() - 1)];
            if (flip()) {  // goes on from, or in the middle of, what it held
                Tokens begin = session.text;
                begin.resize(range<size_t>(0, begin.size()));
                text = joined(random_text(range<size_t>(0, 3), 77), joined(begin, text));
            }
            text.resize(std::min<size_t>(text.size(), n_ctx_));
            session.text = text;
            request.session = session.id;
            request.reuse_chunks = flip() ? range(4u, 16u) : 0;
        }
        request.prompt = std::move(text);
        request.sampling.temperature = 0.0f;
        request.ignore_eos = true;
        request.max_tokens = range(0u, 100u);
        if (flip()) {
            request.context_shift = keep_;
        }
        const auto id = engine_->submit(std::move(request));
        if (id) {
            requests_.push_back(*id);
        }
    }

    void cancel() {
        if (!requests_.empty()) {
            engine_->cancel(requests_[range<size_t>(0, requests_.size() - 1)]);
        }
    }

    void reopen() {
        Held& session = sessions_[range<size_t>(0, sessions_.size() - 1)];
        if (engine_->close_session(session.id)) {
            session = {engine_->open_session(), {}};
        }
    }

    void checkpoint() {
        const auto seqs = memory().cells().sequences();
        if (checkpoints_ && !seqs.empty()) {
            RC_ASSERT(memory().checkpoint(seqs[range<size_t>(0, seqs.size() - 1)]));
        }
    }

    void save_and_load() {
        const SessionId from = sessions_[range<size_t>(0, sessions_.size() - 1)].id;
        const SessionId to = sessions_[range<size_t>(0, sessions_.size() - 1)].id;
        MemorySink sink;
        auto saving = engine_->save(from, {});
        if (!saving) {
            return;
        }
        RC_ASSERT(saving->write(sink));
        MemorySource source(sink.bytes());
        const auto loaded = engine_->load(to, {}, source);
        RC_ASSERT(loaded || loaded.error().code == Code::kNoRoom ||
                  loaded.error().code == Code::kBusy);
    }

    // Requests may be refused before they begin; what runs is never short of room.
    void step() {
        for (const Event& event : engine_->step()) {
            if (!event.error) {
                continue;
            }
            errors_++;
            const bool at_the_door = event.error->message.rfind("the request needs", 0) == 0;
            RC_LOG() << event.error->message << "\n";
            RC_ASSERT(event.error->code == Code::kBadRange || at_the_door);
            RC_ASSERT(event.usage.computed == 0u);
        }
        RC_ASSERT(memory().cells().sequences().size() <= decoding_->decoder().max_texts());
    }

    void run() {
        for (int i = 0; i < 100000 && !engine_->idle(); i++) {
            step();
        }
        RC_ASSERT(engine_->idle());
    }

    const uint32_t keep_ = range(0u, 20u);  // by context shifts
    uint32_t n_ctx_ = 0;
    bool checkpoints_ = false;
    std::unique_ptr<Decoding> decoding_;
    std::unique_ptr<Engine> engine_;
    std::vector<Held> sessions_;
    std::vector<RequestId> requests_;
    size_t errors_ = 0;
};

RC_GTEST_PROP(TextsHistory, NoStepFindsThePoolsFull, ()) {
    History history(model_of(range(0, 2)));
    for (int i = range(0, 60); i > 0; i--) {
        history.act();
    }
    history.finish();
}

}  // namespace
}  // namespace cellar
