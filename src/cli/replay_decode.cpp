#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "cli/replayer.h"

namespace cellar::cli {

namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

// Which tokens give a row of logits.
enum class Wanted { kNone, kLast, kAll };

Result<Wanted> wanted(const JsonFields& fields) {
    auto text = fields.string_or("logits", "none");
    if (!text) {
        return pass(std::move(text));
    }
    if (*text == "none") {
        return Wanted::kNone;
    }
    if (*text == "last") {
        return Wanted::kLast;
    }
    if (*text == "all") {
        return Wanted::kAll;
    }
    return fail(Code::kInvalidArgument, "\"logits\" must be \"none\", \"last\" or \"all\"");
}

// Adds one element of "items" to the batch.
Result<void> add_item(const nlohmann::json& item, Wanted logits, uint32_t n_vocab, Batch& batch) {
    if (!item.is_object()) {
        return fail(Code::kInvalidArgument, "\"items\" must be a list of objects");
    }
    const JsonFields fields(item);
    constexpr std::string_view kKeys[] = {"seq", "tokens", "pos"};
    if (Result<void> fine = fields.check_keys(kKeys); !fine) {
        return fine;
    }
    auto seq = fields.whole("seq", 0, kMaxInt);
    if (!seq) {
        return pass(std::move(seq));
    }
    auto tokens = fields.list("tokens");
    if (!tokens) {
        return pass(std::move(tokens));
    }
    const auto n = static_cast<int64_t>((*tokens)->size());
    auto pos = fields.whole_or("pos", 0, kMaxInt - std::min(n, kMaxInt), kNextPos);
    if (!pos) {
        return pass(std::move(pos));
    }
    for (int64_t i = 0; i < n; i++) {
        const auto token = JsonFields::as_whole((**tokens)[static_cast<size_t>(i)], 0,
                                                static_cast<int64_t>(n_vocab) - 1);
        if (!token) {
            return fail(Code::kInvalidArgument,
                        fmt::format("\"tokens\" must be a list of token ids, from 0 to {}",
                                    int64_t{n_vocab} - 1));
        }
        batch.add(static_cast<Token>(*token), SeqId{static_cast<int32_t>(*seq)},
                  *pos == kNextPos ? kNextPos : static_cast<Pos>(*pos + i),
                  logits == Wanted::kAll || (logits == Wanted::kLast && i + 1 == n));
    }
    return {};
}

// The `top` largest logits as [[id, logit], ...], largest first, the lower id first of equals.
Answer largest(std::span<const float> row, size_t top) {
    std::vector<size_t> ids(row.size());
    for (size_t i = 0; i < ids.size(); i++) {
        ids[i] = i;
    }
    top = std::min(top, ids.size());
    std::partial_sort(
        ids.begin(), ids.begin() + static_cast<ptrdiff_t>(top), ids.end(),
        [row](size_t a, size_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); });
    Answer list = Answer::array();
    for (size_t i = 0; i < top; i++) {
        list.push_back(Answer::array({ids[i], row[ids[i]]}));
    }
    return list;
}

}  // namespace

Result<Answer> Replayer::decode(const JsonFields& fields) {
    auto items = fields.list("items");
    if (!items) {
        return pass(std::move(items));
    }
    auto logits = wanted(fields);
    if (!logits) {
        return pass(std::move(logits));
    }
    auto top = fields.whole_or("top", 1, kMaxInt, 0);
    if (!top) {
        return pass(std::move(top));
    }
    auto ubatches = fields.whole_or("abort_after_ubatch", 0, kMaxInt, kMaxInt);
    if (!ubatches) {
        return pass(std::move(ubatches));
    }
    Batch batch(model_.info().n_pos);
    for (const nlohmann::json& item : **items) {
        if (Result<void> added = add_item(item, *logits, model_.info().n_vocab, batch); !added) {
            return pass(std::move(added));
        }
    }
    const uint64_t attended_before = decoder_->stepper().stats().attended_cells;
    std::map<size_t, Answer> rows;  // by batch item: ubatches may compute them in another order
    const auto keep = [&](size_t item, std::span<const float> row) {
        rows[item] = *top > 0 ? largest(row, static_cast<size_t>(*top))
                              : Answer(std::vector<float>(row.begin(), row.end()));
    };
    auto decoded = decoder_->decode(batch, keep, static_cast<size_t>(*ubatches));
    if (!decoded) {
        return pass(std::move(decoded));
    }
    Answer list = Answer::array();
    for (auto& [item, row] : rows) {
        list.push_back(std::move(row));
    }
    return Answer{{"logits", std::move(list)},
                  {"ubatches", *decoded},
                  {"attended_cells", decoder_->stepper().stats().attended_cells - attended_before}};
}

}  // namespace cellar::cli
