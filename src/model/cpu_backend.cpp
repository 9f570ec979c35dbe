#include "model/cpu_backend.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <string>

namespace cellar {

namespace {

using Backends = std::span<const ggml_backend_t>;

const ggml_tensor* whole(const ggml_tensor* tensor) {
    return tensor->view_src ? tensor->view_src : tensor;
}

// A device reaches its own memory, whatever kind of it. What has no buffer yet will get one.
bool reaches(ggml_backend_t backend, const ggml_tensor* tensor) {
    if (!tensor->buffer) return true;
    ggml_backend_buffer_type_t type = ggml_backend_buffer_get_type(tensor->buffer);
    return ggml_backend_supports_buft(backend, type) ||
           ggml_backend_buft_get_device(type) == ggml_backend_get_device(backend);
}

// What an operation reads or writes beyond all backends' reach; null if all is within.
const ggml_tensor* unreachable(Backends backends, const ggml_tensor* node) {
    const auto reached = [&](const ggml_tensor* tensor) {
        return std::any_of(backends.begin(), backends.end(),
                           [&](ggml_backend_t backend) { return reaches(backend, tensor); });
    };
    if (!reached(whole(node))) return whole(node);
    for (const ggml_tensor* source : node->src) {
        if (source && !reached(whole(source))) return whole(source);
    }
    return nullptr;
}

// What is written in place must be computed where it is; sources can be brought.
bool computable(Backends backends, const ggml_tensor* node) {
    return std::any_of(backends.begin(), backends.end(), [&](ggml_backend_t backend) {
        return reaches(backend, whole(node)) && ggml_backend_supports_op(backend, node);
    });
}

std::string names_of(Backends backends) {
    std::string names;
    for (ggml_backend_t backend : backends) {
        names += (names.empty() ? "" : ", ") + std::string(ggml_backend_name(backend));
    }
    return (backends.size() == 1 ? "The backend " : "None of the backends ") + names;
}

tl::unexpected<Error> cannot(Backends backends, const std::string& what) {
    return fail(Code::kUnsupported, fmt::format("{} {} {}.", names_of(backends),
                                                backends.size() == 1 ? "cannot" : "can", what));
}

}  // namespace

void CpuBackend::FreeThreads::operator()(ggml_threadpool* threads) const {
    ggml_threadpool_free(threads);
}

Result<CpuBackend> CpuBackend::create(uint32_t n_threads) {
    if (n_threads < 1 || n_threads > GGML_MAX_N_THREADS) {
        return fail(Code::kInvalidArgument, fmt::format("{} threads: at least 1 and at most {} can "
                                                        "compute.",
                                                        n_threads, GGML_MAX_N_THREADS));
    }
    const int n = static_cast<int>(n_threads);
    ggml_threadpool_params params = ggml_threadpool_params_default(n);
    CpuBackend cpu;
    cpu.threads_.reset(ggml_threadpool_new(&params));
    cpu.backend_.reset(ggml_backend_cpu_init());
    if (!cpu.threads_ || !cpu.backend_) {
        return fail(Code::kBackend, fmt::format("Cannot start {} compute threads.", n));
    }
    ggml_backend_cpu_set_n_threads(cpu.backend_.get(), n);
    ggml_backend_cpu_set_threadpool(cpu.backend_.get(), cpu.threads_.get());
    return cpu;
}

Result<void> check_graph(ggml_cgraph* graph, Backends backends) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const ggml_tensor* node = ggml_graph_node(graph, i);
        if (const ggml_tensor* far = unreachable(backends, node)) {
            return cannot(backends, fmt::format("reach {}, in {}", far->name,
                                                ggml_backend_buffer_name(far->buffer)));
        }
        if (!computable(backends, node)) {
            return cannot(backends, fmt::format("compute {} ({})", ggml_op_desc(node), node->name));
        }
    }
    return {};
}

Result<void> computed(ggml_status status) {
    if (status == GGML_STATUS_SUCCESS) return {};
    return fail(Code::kBackend,
                fmt::format("The computation failed: {}.", ggml_status_to_string(status)));
}

}  // namespace cellar
