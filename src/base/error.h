#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace cellar {

// Why an operation was refused. One code for each different reaction of a caller.
enum class Code {
    kInvalidArgument,  // the call makes no sense; fix the caller
    kBadRange,         // positions, ids or counts outside what the object holds
    kForgotten,        // what stood there has left its window or state; recompute from further back
    kNoRoom,           // free or evict, then ask again; `Error::room` has the numbers
    kBusy,             // a plan is open; finish or cancel it, then ask again
    kStale,            // the plan (or handle) is no longer, or never was, valid here
    kUnsupported,      // this build, backend or model cannot do it; another may
    kBadFile,          // bytes from outside are damaged or not what they claim to be
    kIo,               // the system refused to read or write; `message` has its reason
    kBackend,          // ggml failed to allocate or compute
    kCancelled,        // the caller asked to stop
};

// What was asked of a memory and what it had: cells, or states or sequences if the message says so.
struct Room {
    uint64_t needed = 0;
    uint64_t free = 0;
    uint64_t cached = 0;  // held by nothing but the prefix tree: evicting makes it free
};

// A failure in the caller's or the world's fault, never ours: nothing has changed.
struct Error {
    Code code = Code::kInvalidArgument;
    std::string message;       // one sentence, with the numbers that matter
    std::optional<Room> room;  // set exactly when code is kNoRoom
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(Code code, std::string message) {
    return tl::unexpected<Error>(Error{code, std::move(message), std::nullopt});
}

// Passes the error of `result` on to a caller whose own result has another type.
template <class T>
tl::unexpected<Error> pass(Result<T>&& result) {
    return tl::unexpected<Error>(std::move(result).error());
}

}  // namespace cellar
