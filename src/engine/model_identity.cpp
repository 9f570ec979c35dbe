#include "engine/model_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "engine/sha256.h"
#include "model/rope_settings.h"
#include "state/files.h"

namespace cellar {

namespace {

// A memo's first word: another one when digests cover something else.
constexpr std::string_view kMemoVersion = "cellar-digests-1";

bool is_of_tokenizer(std::string_view key) {
    return key.starts_with("tokenizer.") && !key.starts_with("tokenizer.chat_template");
}

bool is_of_weights(std::string_view key) {
    return key == "general.architecture" ||
           (!key.starts_with("general.") && !key.starts_with("tokenizer."));
}

// Keys in alphabetical order: a file's order means nothing.
template <class Wanted>
void add_metadata(Sha256& sha, const GgufFile& file, const Wanted& wanted) {
    std::vector<std::string_view> keys = file.keys();
    std::sort(keys.begin(), keys.end());
    for (const std::string_view key : keys) {
        if (wanted(key)) {
            sha.add_text(key);
            sha.add_text(file.encoded(key));
        }
    }
}

void add_tensors(Sha256& sha, const GgufFile& file) {
    for (const TensorInfo& tensor : file.tensors()) {
        sha.add_text(tensor.name);
        sha.add_number(static_cast<uint64_t>(tensor.type));
        for (const int64_t n : tensor.ne) {
            sha.add_number(static_cast<uint64_t>(n));
        }
        sha.add(file.mapping()->bytes().subspan(tensor.offset, tensor.bytes));
    }
}

std::optional<Digest> from_hex(std::string_view hex) {
    Digest digest;
    if (hex.size() != 2 * digest.size()) {
        return std::nullopt;
    }
    const auto value = [](char c) {
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    for (size_t i = 0; i < digest.size(); i++) {
        const int high = value(hex[2 * i]), low = value(hex[2 * i + 1]);
        if (high < 0 || low < 0) {
            return std::nullopt;
        }
        digest[i] = static_cast<uint8_t>(16 * high + low);
    }
    return digest;
}

std::string absolute_path(const GgufFile& file) {
    std::error_code ignored;
    const auto path = std::filesystem::weakly_canonical(file.path(), ignored);
    return path.empty() ? file.path() : path.string();
}

// What a memo's first line says, before the digests, of the file as it is now.
std::string stamp_text(const GgufFile& file) {
    const FileStamp& stamp = file.mapping()->stamp();
    return fmt::format("{} {} {} {} {}", kMemoVersion, stamp.size, stamp.modified_ns, stamp.device,
                       stamp.inode);
}

std::optional<FileDigests> read_memo(const std::filesystem::path& path, const GgufFile& file) {
    std::ifstream in(path);
    std::string stamp, weights, tokenizer;
    if (!std::getline(in, stamp) || !std::getline(in, weights) || !std::getline(in, tokenizer) ||
        stamp != stamp_text(file)) {
        return std::nullopt;
    }
    const auto first = from_hex(weights), second = from_hex(tokenizer);
    if (!first || !second) {
        return std::nullopt;
    }
    return FileDigests{*first, *second};
}

void write_memo(const std::filesystem::path& path, const GgufFile& file,
                const FileDigests& digests) {
    std::error_code ignored;
    std::filesystem::create_directories(path.parent_path(), ignored);
    auto sink = FileSink::create(path.string(), system_disk(), false);
    if (!sink) {
        return;
    }
    const std::string text =
        fmt::format("{}\n{}\n{}\n{}\n", stamp_text(file), to_hex(digests.weights),
                    to_hex(digests.tokenizer), absolute_path(file));
    if ((*sink)->write(std::as_bytes(std::span(text)))) {
        (void)(*sink)->finish();
    }
}

}  // namespace

FileDigests digest_file(const GgufFile& file) {
    FileDigests digests;
    Sha256 weights, tokenizer;
    add_metadata(weights, file, is_of_weights);
    add_tensors(weights, file);
    digests.weights = weights.finish();
    add_metadata(tokenizer, file, is_of_tokenizer);
    digests.tokenizer = tokenizer.finish();
    return digests;
}

std::optional<DigestMemo> DigestMemo::of_user() {
    const auto folder = [](const char* variable) {
        const char* value = std::getenv(variable);
        return std::filesystem::path(value != nullptr ? value : "");
    };
    // Relative paths there are to be ignored, says the XDG base directory specification.
    if (const auto cache = folder("XDG_CACHE_HOME"); cache.is_absolute()) {
        return DigestMemo(cache / "cellar" / "digests");
    }
    if (const auto home = folder("HOME"); home.is_absolute()) {
        return DigestMemo(home / ".cache" / "cellar" / "digests");
    }
    return std::nullopt;
}

std::filesystem::path DigestMemo::path_for(const GgufFile& file) const {
    Sha256 name;
    name.add_text(absolute_path(file));
    return folder_ / to_hex(name.finish()).substr(0, 32);
}

FileDigests DigestMemo::digests(const GgufFile& file) const {
    const std::filesystem::path path = path_for(file);
    if (const auto known = read_memo(path, file)) {
        return *known;
    }
    const FileDigests digests = digest_file(file);
    write_memo(path, file, digests);
    return digests;
}

Identity identify(const GgufFile& file, const Model& model, uint32_t n_ctx,
                  const std::optional<DigestMemo>& memo) {
    const FileDigests digests = memo ? memo->digests(file) : digest_file(file);
    Sha256 rope;
    rope.add_text(rope_settings(model, n_ctx));
    Identity identity;
    identity.model = model.info().name;
    identity.weights = digests.weights;
    identity.tokenizer = digests.tokenizer;
    identity.rope = rope.finish();
    return identity;
}

}  // namespace cellar
