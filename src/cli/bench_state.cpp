#include "cli/bench_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "state/files.h"
#include "state/loader.h"
#include "state/saving.h"

namespace cellar::cli {

namespace {

constexpr int kRounds = 7;
constexpr SeqId kSaved{0}, kLoaded{1};

// The files of one run, removed at its end.
struct Files {
    explicit Files(const std::string& folder)
        : state(fmt::format("{}/cellar-bench-{}.state", folder, ::getpid())),
          copy(state + ".copy") {}
    Files(const Files&) = delete;
    Files& operator=(const Files&) = delete;
    ~Files() { remove(); }

    void remove() const {
        std::error_code ignored;
        std::filesystem::remove(state, ignored);
        std::filesystem::remove(copy, ignored);
    }

    const std::string state, copy;
};

class StateBench {
public:
    StateBench(Decoder& decoder, std::vector<Token> tokens, const Identity& identity,
               const std::string& folder)
        : decoder_(decoder), tokens_(std::move(tokens)), identity_(identity), files_(folder) {}

    Result<StateTimes> run() {
        StateTimes times;
        auto computed = timed([this] { return decode(kSaved, 0); });
        if (!computed) {
            return pass(std::move(computed));
        }
        times.compute_s = *computed;
        std::vector<double> save, copy, load, answer;
        for (int round = 0; round < kRounds; round++) {
            files_.remove();  // both are made anew: replacing a file is the file system's affair
            const auto last = tokens_.size() - 1;
            const std::pair<std::vector<double>*, std::function<Result<void>()>> parts[] = {
                {&save, [this] { return this->save(); }},
                {&copy, [this] { return this->copy(); }},
                {&load, [this] { return this->load(); }},
                {&answer, [this, last] { return decode(kLoaded, last); }}};
            for (const auto& [seconds, part] : parts) {
                auto taken = timed(part);
                if (!taken) {
                    return pass(std::move(taken));
                }
                seconds->push_back(*taken);
            }
            answer.back() += load.back();
        }
        times.bytes = bytes_;
        times.save_s = median(std::move(save));
        times.copy_s = median(std::move(copy));
        times.load_s = median(std::move(load));
        times.answer_s = median(std::move(answer));
        return times;
    }

private:
    template <class Part>
    static Result<double> timed(const Part& part) {
        const auto start = std::chrono::steady_clock::now();
        if (Result<void> done = part(); !done) {
            return pass(std::move(done));
        }
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }

    // The tokens from `first` on, with logits for the last.
    Result<void> decode(SeqId seq, size_t first) {
        Batch batch(decoder_.memory().config().n_pos);
        if (Result<void> gone = decoder_.memory().seq_rm(seq, static_cast<Pos>(first), kOpen);
            !gone) {
            return gone;
        }
        for (size_t i = first; i < tokens_.size(); i++) {
            batch.add(tokens_[i], seq, kNextPos, i + 1 == tokens_.size());
        }
        auto decoded = decoder_.decode(batch, [](size_t, std::span<const float>) {});
        if (!decoded) {
            return pass(std::move(decoded));
        }
        return {};
    }

    Result<void> save() {
        const SequenceToSave sequence{kSaved, tokens_};
        auto saving = Saving::begin(decoder_.memory(), identity_, {&sequence, 1}, {});
        if (!saving) {
            return pass(std::move(saving));
        }
        auto sink = FileSink::create(files_.state, system_disk(), false);
        if (!sink) {
            return pass(std::move(sink));
        }
        bytes_ = saving->size();
        return saving->write(**sink);
    }

    Result<void> copy() {
        std::error_code failed;
        std::filesystem::copy_file(files_.state, files_.copy,
                                   std::filesystem::copy_options::overwrite_existing, failed);
        if (failed) {
            return fail(Code::kIo,
                        fmt::format("{}: cannot copy to it: {}", files_.copy, failed.message()));
        }
        return {};
    }

    Result<void> load() {
        auto source = FileSource::open(files_.state);
        if (!source) {
            return pass(std::move(source));
        }
        (void)decoder_.memory().seq_rm(kLoaded, 0, kOpen);  // a whole sequence always goes
        auto loaded = load_state(decoder_.memory(), identity_, **source, {.into = kLoaded});
        if (!loaded) {
            return pass(std::move(loaded));
        }
        return {};
    }

    Decoder& decoder_;
    const std::vector<Token> tokens_;
    const Identity& identity_;
    const Files files_;
    uint64_t bytes_ = 0;  // of the state
};

}  // namespace

BenchWork state_work(const BenchWork& work) {
    BenchWork both = work;
    both.seqs = 2;
    both.shared = false;
    both.gen = 1;
    return both;
}

Result<StateTimes> time_state(Decoder& decoder, const BenchWork& work, uint32_t n_vocab,
                              const Identity& identity, const std::string& folder) {
    std::mt19937 random(0);
    std::vector<Token> tokens(work.depth + work.prompt);
    for (Token& token : tokens) {
        token = static_cast<Token>(random() % n_vocab);
    }
    return StateBench(decoder, std::move(tokens), identity, folder).run();
}

}  // namespace cellar::cli
