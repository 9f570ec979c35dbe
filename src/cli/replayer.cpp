#include "cli/replayer.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "cells/view.h"
#include "cli/debug_log.h"
#include "cli/view_json.h"

namespace cellar::cli {

namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

Answer nothing() {
    return Answer::object();
}

Result<Answer> done(Result<void>&& result) {
    if (!result) {
        return pass(std::move(result));
    }
    return nothing();
}

// The range of positions that "p0" and "p1" give; open where they are missing.
struct Positions {
    Pos p0 = kOpen;
    Pos p1 = kOpen;
};

Result<Positions> positions(const JsonFields& fields) {
    auto p0 = fields.whole_or("p0", -1, kMaxInt, kOpen);
    if (!p0) {
        return pass(std::move(p0));
    }
    auto p1 = fields.whole_or("p1", -1, kMaxInt, kOpen);
    if (!p1) {
        return pass(std::move(p1));
    }
    return Positions{static_cast<Pos>(*p0), static_cast<Pos>(*p1)};
}

// What "seq", "p0" and "p1" name: positions of one sequence, or of all.
struct SequencePart {
    SeqId seq = kEverySeq;
    Pos p0 = kOpen;
    Pos p1 = kOpen;
};

Result<SequencePart> sequence_part(const JsonFields& fields) {
    auto seq = read_sequence(fields, "seq", -1);
    if (!seq) {
        return pass(std::move(seq));
    }
    auto range = positions(fields);
    if (!range) {
        return pass(std::move(range));
    }
    return SequencePart{*seq, range->p0, range->p1};
}

}  // namespace

Result<SeqId> read_sequence(const JsonFields& fields, std::string_view key, int64_t low) {
    auto id = fields.whole(key, low, kMaxInt);
    if (!id) {
        return pass(std::move(id));
    }
    return SeqId{static_cast<int32_t>(*id)};
}

struct Replayer::Operation {
    std::string_view name;
    std::vector<std::string_view> keys;  // beside "op"
    Result<Answer> (Replayer::*perform)(const JsonFields&);
};

const std::vector<Replayer::Operation>& Replayer::operations() {
    static const std::vector<Operation> kOperations = {
        {"new",
         {"cells", "budget_bytes", "grow_step", "defrag_threshold", "defrag_cells", "type_k",
          "type_v", "attention", "ubatch", "page", "threads", "swa_full", "n_rollback",
          "checkpoints", "sequences"},
         &Replayer::make_new},
        {"decode", {"items", "logits", "top", "abort_after_ubatch"}, &Replayer::decode},
        {"seq_rm", {"seq", "p0", "p1"}, &Replayer::seq_rm},
        {"can_rm", {"seq", "p0", "p1"}, &Replayer::can_rm},
        {"checkpoint", {"seq"}, &Replayer::checkpoint},
        {"seq_cp", {"from", "to", "p0", "p1"}, &Replayer::seq_cp},
        {"seq_add", {"seq", "p0", "p1", "delta"}, &Replayer::seq_add},
        {"can_shift", {}, &Replayer::can_shift},
        {"seq_div", {"seq", "p0", "p1", "d"}, &Replayer::seq_div},
        {"seq_keep", {"seq"}, &Replayer::seq_keep},
        {"clear", {"data"}, &Replayer::clear},
        {"defrag", {"cells"}, &Replayer::defrag},
        {"view", {"groups", "map"}, &Replayer::view},
        {"save", {"seq", "file", "compress"}, &Replayer::save},
        {"load", {"seq", "file", "convert"}, &Replayer::load},
        {"hash", {"seq"}, &Replayer::hash},
    };
    return kOperations;
}

std::string Replayer::operation_names() {
    std::vector<std::string_view> names;
    for (const Operation& operation : operations()) {
        names.push_back(operation.name);
    }
    return fmt::format("{}", fmt::join(names, ", "));
}

Answer Replayer::answer(std::string_view line) {
    Answer answer = {{"ok", true}};
    if (Result<Answer> result = perform(line)) {
        answer.update(*result);
    } else {
        answer = {{"ok", false}, {"error", result.error().message}};
    }
    return answer;
}

Result<Answer> Replayer::perform(std::string_view line) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) {
        return fail(Code::kInvalidArgument, object.is_discarded()
                                                ? "the line is not valid JSON"
                                                : "the line is JSON, but not an object");
    }
    const JsonFields fields(object);
    auto op = fields.string("op");
    if (!op) {
        return pass(std::move(op));
    }
    for (const Operation& operation : operations()) {
        if (operation.name != *op) {
            continue;
        }
        std::vector<std::string_view> known = {"op"};
        known.insert(known.end(), operation.keys.begin(), operation.keys.end());
        if (Result<void> fine = fields.check_keys(known); !fine) {
            return pass(std::move(fine));
        }
        if (operation.perform != &Replayer::make_new) {
            if (Result<void> there = need_memory(); !there) {
                return pass(std::move(there));
            }
        }
        return (this->*operation.perform)(fields);
    }
    return fail(Code::kInvalidArgument,
                fmt::format("\"{}\" is no operation; there are {}", *op, operation_names()));
}

Result<void> Replayer::need_memory() {
    if (decoder_) {
        return {};
    }
    return replace_memory(defaults_);
}

Result<void> Replayer::replace_memory(const DecoderOptions& options) {
    auto made = Decoder::create(model_, options);
    if (!made) {
        return pass(std::move(made));
    }
    decoder_ = std::move(*made);
    log_memory(memory());
    return {};
}

Result<Answer> Replayer::seq_rm(const JsonFields& fields) {
    auto part = sequence_part(fields);
    if (!part) {
        return pass(std::move(part));
    }
    return done(memory().seq_rm(part->seq, part->p0, part->p1));
}

Result<Answer> Replayer::can_rm(const JsonFields& fields) {
    auto part = sequence_part(fields);
    if (!part) {
        return pass(std::move(part));
    }
    return Answer{{"can_rm", memory().can_rm(part->seq, part->p0, part->p1).has_value()}};
}

Result<Answer> Replayer::checkpoint(const JsonFields& fields) {
    auto seq = read_sequence(fields, "seq");
    if (!seq) {
        return pass(std::move(seq));
    }
    return done(memory().checkpoint(*seq));
}

Result<Answer> Replayer::seq_cp(const JsonFields& fields) {
    auto from = read_sequence(fields, "from");
    if (!from) {
        return pass(std::move(from));
    }
    auto to = read_sequence(fields, "to");
    if (!to) {
        return pass(std::move(to));
    }
    auto range = positions(fields);
    if (!range) {
        return pass(std::move(range));
    }
    return done(memory().seq_cp(*from, *to, range->p0, range->p1));
}

Result<Answer> Replayer::seq_add(const JsonFields& fields) {
    auto part = sequence_part(fields);
    if (!part) {
        return pass(std::move(part));
    }
    auto delta = fields.whole("delta", -kMaxInt, kMaxInt);
    if (!delta) {
        return pass(std::move(delta));
    }
    return done(memory().seq_add(part->seq, part->p0, part->p1, static_cast<Pos>(*delta)));
}

Result<Answer> Replayer::can_shift(const JsonFields& /*fields*/) {
    return Answer{{"can_shift", memory().can_shift()}};
}

Result<Answer> Replayer::seq_div(const JsonFields& fields) {
    auto part = sequence_part(fields);
    if (!part) {
        return pass(std::move(part));
    }
    auto d = fields.whole("d", 1, kMaxInt);
    if (!d) {
        return pass(std::move(d));
    }
    return done(memory().seq_div(part->seq, part->p0, part->p1, static_cast<int32_t>(*d)));
}

Result<Answer> Replayer::seq_keep(const JsonFields& fields) {
    auto seq = read_sequence(fields, "seq");
    if (!seq) {
        return pass(std::move(seq));
    }
    return done(memory().seq_keep(*seq));
}

Result<Answer> Replayer::defrag(const JsonFields& fields) {
    auto most = fields.whole_or("cells", 0, kMaxInt, kMaxInt);
    if (!most) {
        return pass(std::move(most));
    }
    auto moved = memory().defrag(static_cast<uint32_t>(*most));
    if (!moved) {
        return pass(std::move(moved));
    }
    return Answer{{"moved", *moved}};
}

Result<Answer> Replayer::clear(const JsonFields& fields) {
    auto data = fields.boolean_or("data", false);
    if (!data) {
        return pass(std::move(data));
    }
    return done(memory().clear(*data));
}

// The first group's totals; on request every group in full, and a map for people.
Result<Answer> Replayer::view(const JsonFields& fields) {
    auto groups = fields.boolean_or("groups", false);
    if (!groups) {
        return pass(std::move(groups));
    }
    auto map = fields.boolean_or("map", false);
    if (!map) {
        return pass(std::move(map));
    }
    constexpr int kWithPositions = 3;
    const CellsView view = make_view(memory().cells());
    Answer answer = summary(view.groups[0]);
    if (*groups) {
        answer["groups"] = to_json(view);
    }
    if (*map) {
        answer["map"] = describe(view, kWithPositions);
    }
    return answer;
}

}  // namespace cellar::cli
