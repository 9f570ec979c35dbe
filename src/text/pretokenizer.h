#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/regex.h"

namespace cellar {

// Cuts text into the words that byte-level BPE then merges within. Merges never cross a word's end,
// so a pre-tokenizer decides token ids as much as the merges do.
//
// It is a list of patterns: the first one's matches and the gaps between them are cut further by
// the second, and so on. Constant after construction, so threads may share it.
class Pretokenizer {
public:
    using Sink = std::function<void(std::string_view word)>;

    // By the name in `tokenizer.ggml.pre`. Names of models whose words are cut alike are known too.
    // Errors: kUnsupported with the name and the ones known.
    static Result<Pretokenizer> create(std::string_view name);

    // Whether a word that is a token as a whole is that token, whatever the merges say.
    bool takes_whole_words() const { return takes_whole_words_; }

    // Whether texts begin with BOS unless the file says otherwise.
    bool adds_bos() const { return adds_bos_; }

    // Gives `word` the words of `text` in order; together they are `text`, byte by byte. Bytes that
    // are no UTF-8 are words of their own. Time O(size of text), memory O(1).
    void split(std::string_view text, const Sink& word) const;

private:
    std::vector<Regex> stages_;
    bool takes_whole_words_ = false;
    bool adds_bos_ = false;
};

}  // namespace cellar
