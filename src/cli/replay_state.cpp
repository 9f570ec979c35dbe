// The operations that have to do with files: save, load, hash.

#include <string>
#include <string_view>
#include <utility>

#include "cli/replayer.h"
#include "state/files.h"
#include "state/loader.h"
#include "state/saving.h"
#include "state/seen_hash.h"

namespace cellar::cli {

namespace {

// A sequence, a file, and what is to be done with keys and values on the way.
struct Transfer {
    SeqId seq{0};
    std::string path;
    bool flag = false;

    static Result<Transfer> read(const JsonFields& fields, std::string_view flag) {
        auto seq = read_sequence(fields, "seq");
        if (!seq) {
            return pass(std::move(seq));
        }
        auto path = fields.string("file");
        if (!path) {
            return pass(std::move(path));
        }
        auto set = fields.boolean_or(flag, false);
        if (!set) {
            return pass(std::move(set));
        }
        return Transfer{*seq, *std::move(path), *set};
    }
};

}  // namespace

Result<Answer> Replayer::save(const JsonFields& fields) {
    auto transfer = Transfer::read(fields, "compress");
    if (!transfer) {
        return pass(std::move(transfer));
    }
    if (auto applied = decoder_->apply_pending(); !applied) {
        return pass(std::move(applied));
    }
    const SequenceToSave sequence{transfer->seq};
    auto saving =
        Saving::begin(memory(), identify_(memory()), {&sequence, 1}, {.compress = transfer->flag});
    if (!saving) {
        return pass(std::move(saving));
    }
    auto sink = FileSink::create(transfer->path);
    if (!sink) {
        return pass(std::move(sink));
    }
    if (auto written = saving->write(**sink); !written) {
        return pass(std::move(written));
    }
    auto file = FileSource::open(transfer->path);  // compressed, it is smaller than foretold
    if (!file) {
        return pass(std::move(file));
    }
    return Answer{{"bytes", *(*file)->remaining()}};
}

Result<Answer> Replayer::load(const JsonFields& fields) {
    auto transfer = Transfer::read(fields, "convert");
    if (!transfer) {
        return pass(std::move(transfer));
    }
    if (auto applied = decoder_->apply_pending(); !applied) {
        return pass(std::move(applied));
    }
    auto source = FileSource::open(transfer->path);
    if (!source) {
        return pass(std::move(source));
    }
    auto loaded = load_state(memory(), identify_(memory()), **source,
                             {.into = transfer->seq, .convert = transfer->flag});
    if (!loaded) {
        return pass(std::move(loaded));
    }
    return Answer{{"pos_max", memory().seq_pos_max(transfer->seq)}};
}

Result<Answer> Replayer::hash(const JsonFields& fields) {
    auto seq = read_sequence(fields, "seq");
    if (!seq) {
        return pass(std::move(seq));
    }
    return Answer{{"hash", hash_seen(memory(), *seq)}};
}

}  // namespace cellar::cli
