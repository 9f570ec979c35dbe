#include "testing/far_memory.h"

#include <ggml-backend.h>

#if __has_include(<ggml-backend-impl.h>)
#include <ggml-backend-impl.h>
#define CELLAR_CAN_MAKE_BUFFER_TYPES
#endif

namespace cellar::testing {

#ifdef CELLAR_CAN_MAKE_BUFFER_TYPES
namespace {

ggml_backend_buffer_type make(const char* (*name)(ggml_backend_buffer_type_t), bool of_cpu) {
    ggml_backend_buffer_type type = *ggml_backend_cpu_buffer_type();
    type.iface.get_name = name;
    type.iface.is_host = [](ggml_backend_buffer_type_t) { return false; };
    type.device = of_cpu ? ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) : nullptr;
    return type;
}

}  // namespace

ggml_backend_buffer_type* far_memory(bool of_cpu) {
    static auto near = make([](ggml_backend_buffer_type_t) { return "FAR"; }, true);
    static auto lost = make([](ggml_backend_buffer_type_t) { return "LOST"; }, false);
    return of_cpu ? &near : &lost;
}

#else
ggml_backend_buffer_type* far_memory(bool) {
    return nullptr;
}
#endif

}  // namespace cellar::testing
