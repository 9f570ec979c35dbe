#pragma once

#include <ggml.h>

#include "memory/kv_type.h"

namespace cellar {

// How ggml names a type. Apart from kv_type.h, so that users of the memory need no ggml header.
ggml_type ggml_type_of(KvType type);

}  // namespace cellar
