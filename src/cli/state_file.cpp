#include "cli/state_file.h"

#include <utility>

#include "engine/model_identity.h"
#include "state/files.h"

namespace cellar::cli {

namespace {

// With the file's name in front, unless the sentence has it already.
tl::unexpected<Error> about(const std::string& path, Error error) {
    if (!error.message.starts_with(path)) {
        error.message = path + ": " + error.message;
    }
    return tl::unexpected<Error>(std::move(error));
}

}  // namespace

Identity identity_of(const LoadedModel& loaded, const Memory& memory) {
    return identify(loaded.file, *loaded.model, memory.config().n_cells, DigestMemo::of_user());
}

Result<void> save_session(const Writer& writer, SessionId session, std::span<const Token> text,
                          const std::string& path, bool compress) {
    const Identity identity = identity_of(*writer.loaded, writer.decoder->memory());
    auto saving = writer.engine->save(session, identity, text, {.compress = compress});
    if (!saving) {
        return about(path, std::move(saving).error());
    }
    auto sink = FileSink::create(path);
    if (!sink) {
        return about(path, std::move(sink).error());
    }
    if (auto written = saving->write(**sink); !written) {
        return about(path, std::move(written).error());
    }
    return {};
}

Result<std::vector<Token>> load_session(const Writer& writer, SessionId session,
                                        const std::string& path, bool convert) {
    auto source = FileSource::open(path);
    if (!source) {
        return about(path, std::move(source).error());
    }
    const Identity identity = identity_of(*writer.loaded, writer.decoder->memory());
    auto text = writer.engine->load(session, identity, **source, {.convert = convert});
    if (!text) {
        return about(path, std::move(text).error());
    }
    return text;
}

}  // namespace cellar::cli
