#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "gguf/gguf_file.h"
#include "model/model.h"
#include "state/identity.h"

namespace cellar {

// Digests of what a model file holds. The weights' covers every tensor, its name, type and shape,
// and all metadata but "general.*" (the architecture aside) and "tokenizer.*"; the tokenizer's
// covers "tokenizer.*" but chat templates. So a file with another title or template is the same
// model.
struct FileDigests {
    Digest weights{};
    Digest tokenizer{};
};

// O(file): about a second for each two gigabytes.
FileDigests digest_file(const GgufFile& file);

// Remembers a file's digests beside its size, time of change and inode, in a folder with one small
// text for each path: a file that was not touched is not read again. What cannot be read or
// written there costs time, never an error.
class DigestMemo {
public:
    explicit DigestMemo(std::filesystem::path folder) : folder_(std::move(folder)) {}

    // `$XDG_CACHE_HOME/cellar/digests`, or `~/.cache/cellar/digests`; none without either.
    static std::optional<DigestMemo> of_user();

    FileDigests digests(const GgufFile& file) const;

private:
    std::filesystem::path path_for(const GgufFile& file) const;

    std::filesystem::path folder_;
};

// What a state of this model depends on, in a memory for contexts of `n_ctx` tokens (by which a
// model may choose its rope's factors).
Identity identify(const GgufFile& file, const Model& model, uint32_t n_ctx,
                  const std::optional<DigestMemo>& memo);

}  // namespace cellar
