#include "testing/far_device.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include "testing/far_memory.h"

#if __has_include(<ggml-backend-impl.h>)
#include <ggml-backend-impl.h>
#define CELLAR_CAN_MAKE_DEVICES
#endif

namespace cellar::testing {

#ifdef CELLAR_CAN_MAKE_DEVICES
namespace {

uint64_t computed = 0;

ggml_backend_buffer_type_t memory_of(ggml_backend_dev_t device) {
    static ggml_backend_buffer_type type = [] {
        ggml_backend_buffer_type made = *far_memory();
        made.iface.get_name = [](ggml_backend_buffer_type_t) { return "FAR0"; };
        return made;
    }();
    type.device = device;
    return &type;
}

bool is_mine(const ggml_tensor* tensor, ggml_backend_dev_t device) {
    const ggml_tensor* whole = tensor->view_src ? tensor->view_src : tensor;
    return whole->buffer && ggml_backend_buffer_get_type(whole->buffer) == memory_of(device);
}

bool computes_nothing(ggml_op op) {
    return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW ||
           op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

ggml_status compute(ggml_backend_t backend, ggml_cgraph* graph) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const ggml_tensor* node = ggml_graph_node(graph, i);
        if (computes_nothing(node->op)) continue;
        GGML_ASSERT(is_mine(node, backend->device));
        for (const ggml_tensor* source : node->src)
            GGML_ASSERT(source == nullptr || is_mine(source, backend->device));
        computed++;
    }
    return ggml_backend_graph_compute(static_cast<ggml_backend_t>(backend->context), graph);
}

ggml_backend_t start(ggml_backend_dev_t device, const char*) {
    static ggml_guid guid = {0xfa, 0x12};
    auto* backend = new ggml_backend{};
    backend->guid = &guid;
    backend->device = device;
    backend->context = ggml_backend_cpu_init();
    backend->iface.get_name = [](ggml_backend_t) { return "FAR0"; };
    backend->iface.free = [](ggml_backend_t self) {
        ggml_backend_free(static_cast<ggml_backend_t>(self->context));
        delete self;
    };
    backend->iface.graph_compute = compute;
    return backend;
}

bool can_compute(ggml_backend_dev_t, const ggml_tensor* op) {
    const bool custom = op->op == GGML_OP_CUSTOM || op->op == GGML_OP_MAP_CUSTOM1 ||
                        op->op == GGML_OP_MAP_CUSTOM2 || op->op == GGML_OP_MAP_CUSTOM3;
    return !custom &&
           ggml_backend_dev_supports_op(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), op);
}

}  // namespace

ggml_backend_device* far_device() {
    static ggml_backend_device device = [] {
        ggml_backend_device made{};
        made.iface.get_name = [](ggml_backend_dev_t) { return "FAR0"; };
        made.iface.get_description = [](ggml_backend_dev_t) { return "The CPU in disguise"; };
        made.iface.get_memory = [](ggml_backend_dev_t, size_t* free, size_t* total) {
            *free = size_t{1} << 30;
            *total = size_t{2} << 30;
        };
        made.iface.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
        made.iface.init_backend = start;
        made.iface.get_buffer_type = memory_of;
        made.iface.supports_op = can_compute;
        made.iface.supports_buft = [](ggml_backend_dev_t self, ggml_backend_buffer_type_t type) {
            return type == memory_of(self);
        };
        made.reg =
            ggml_backend_dev_backend_reg(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
        return made;
    }();
    static const bool kListed = [] {
        ggml_backend_device_register(&device);
        return true;
    }();
    return kListed ? &device : nullptr;
}

uint64_t computed_far_away() {
    return computed;
}

#else
ggml_backend_device* far_device() {
    return nullptr;
}
uint64_t computed_far_away() {
    return 0;
}
#endif

}  // namespace cellar::testing
