#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace cellar {

// Walks the metadata of a GGUF file (header, keys, tensor directory) and says whether ggml's parser
// may see it. What passes here is parsed by ggml without an abort, a log line or an allocation that
// is out of proportion to the metadata's bytes, in every ggml we build against:
//   - every length fits into the bytes that are there, and counts stay below limits that no real
//     model comes near (16,384 keys, 16,384 tensors, 2^24 elements an array, 256 MiB in all);
//   - keys and tensor names are unique, not empty and free of NUL bytes;
//   - the alignment is a u32 power of two; no dimension is 0, no product overflows;
//   - tensors follow each other without gap or overlap, and the last one ends inside the file.
// ggml 0.15 aborts or traps on several of these (an empty key, an alignment that is no u32, a
// dimension of 0), and both its versions search duplicates or allocate by counts that a file of
// zeros makes large for free.
//
// O(metadata) time; O(keys + tensors) memory. Errors: kBadFile, a sentence without the file's name.
Result<void> check_gguf(std::span<const std::byte> file);

// Bytes of one scalar of a GGUF type, 0 for strings, arrays and numbers that are no type.
uint64_t scalar_bytes(uint32_t type);

}  // namespace cellar
