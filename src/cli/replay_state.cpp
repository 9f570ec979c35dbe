// The operations that have to do with files: save, load, hash.

#include <utility>

#include "cli/replayer.h"
#include "state/files.h"
#include "state/loader.h"
#include "state/saving.h"
#include "state/seen_hash.h"

namespace cellar::cli {

Result<Answer> Replayer::save(const JsonFields& fields) {
    auto seq = read_sequence(fields, "seq");
    if (!seq) {
        return pass(std::move(seq));
    }
    auto path = fields.string("file");
    if (!path) {
        return pass(std::move(path));
    }
    auto compress = fields.boolean_or("compress", false);
    if (!compress) {
        return pass(std::move(compress));
    }
    if (auto applied = decoder_->apply_pending(); !applied) {
        return pass(std::move(applied));
    }
    const SequenceToSave sequence{*seq};
    auto saving = Saving::begin(memory(), identify_(memory()), {&sequence, 1},
                                SaveOptions{.compress = *compress});
    if (!saving) {
        return pass(std::move(saving));
    }
    auto sink = FileSink::create(*path);
    if (!sink) {
        return pass(std::move(sink));
    }
    if (auto written = saving->write(**sink); !written) {
        return pass(std::move(written));
    }
    return Answer{{"bytes", saving->size()}};
}

Result<Answer> Replayer::load(const JsonFields& fields) {
    auto seq = read_sequence(fields, "seq");
    if (!seq) {
        return pass(std::move(seq));
    }
    auto path = fields.string("file");
    if (!path) {
        return pass(std::move(path));
    }
    auto convert = fields.boolean_or("convert", false);
    if (!convert) {
        return pass(std::move(convert));
    }
    if (auto applied = decoder_->apply_pending(); !applied) {
        return pass(std::move(applied));
    }
    auto source = FileSource::open(*path);
    if (!source) {
        return pass(std::move(source));
    }
    auto loaded =
        load_state(memory(), identify_(memory()), **source, {.into = *seq, .convert = *convert});
    if (!loaded) {
        return pass(std::move(loaded));
    }
    return Answer{{"pos_max", memory().seq_pos_max(*seq)}};
}

Result<Answer> Replayer::hash(const JsonFields& fields) {
    auto seq = read_sequence(fields, "seq");
    if (!seq) {
        return pass(std::move(seq));
    }
    return Answer{{"hash", hash_seen(memory(), *seq)}};
}

}  // namespace cellar::cli
