#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/json_fields.h"
#include "engine/decoder.h"
#include "model/model.h"
#include "state/identity.h"

namespace cellar::cli {

// An answer: keys in the order they were set, and floats in the fewest digits that give them back.
using Answer = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, int64_t,
                                    uint64_t, float>;

// The sequence that a field names, at least `low`.
Result<SeqId> read_sequence(const JsonFields& fields, std::string_view key, int64_t low = 0);

// Does the operations of a script on a memory, one JSON object each. An operation that is refused
// changes nothing, and the next one goes on from there.
class Replayer {
public:
    // `model` must outlive it. `defaults` hold where `new` says nothing, and for the memory that is
    // made when a script begins without `new`. `identify` says what states saved from a memory of
    // the model depend on.
    Replayer(const Model& model, const DecoderOptions& defaults,
             std::function<Identity(const Memory&)> identify)
        : model_(model), defaults_(defaults), identify_(std::move(identify)) {}

    // Does the operation that `line` describes: {"ok":true,...} or {"ok":false,"error":"..."}.
    Answer answer(std::string_view line);

    // The names of all operations, in order: "new, decode, ...".
    static std::string operation_names();

private:
    struct Operation;
    static const std::vector<Operation>& operations();

    Result<Answer> perform(std::string_view line);
    Result<void> need_memory();
    Result<void> replace_memory(const DecoderOptions& options);

    // The operations. Each gets the fields of its object, keys checked, and gives the answer's
    // fields beside "ok". All but make_new find a memory.
    Result<Answer> make_new(const JsonFields& fields);  // replay_new.cpp
    Result<Answer> decode(const JsonFields& fields);    // replay_decode.cpp
    Result<Answer> seq_rm(const JsonFields& fields);
    Result<Answer> can_rm(const JsonFields& fields);
    Result<Answer> checkpoint(const JsonFields& fields);
    Result<Answer> seq_cp(const JsonFields& fields);
    Result<Answer> seq_add(const JsonFields& fields);
    Result<Answer> seq_div(const JsonFields& fields);
    Result<Answer> can_shift(const JsonFields& fields);
    Result<Answer> seq_keep(const JsonFields& fields);
    Result<Answer> clear(const JsonFields& fields);
    Result<Answer> defrag(const JsonFields& fields);
    Result<Answer> view(const JsonFields& fields);
    Result<Answer> save(const JsonFields& fields);  // replay_state.cpp, and the two below
    Result<Answer> load(const JsonFields& fields);
    Result<Answer> hash(const JsonFields& fields);

    Memory& memory() { return decoder_->memory(); }

    const Model& model_;
    const DecoderOptions defaults_;
    const std::function<Identity(const Memory&)> identify_;
    std::unique_ptr<Decoder> decoder_;  // null until the first operation that needs it
};

}  // namespace cellar::cli
