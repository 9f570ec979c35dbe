#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <cassert>
#include <vector>

namespace cellar {

// The values of a tensor, to be written from the host and handed over at the end of its life:
// straight into host memory, over a copy to any other.
template <class T>
class InputWriter {
public:
    explicit InputWriter(ggml_tensor* tensor) : tensor_(tensor) {
        assert(tensor->buffer != nullptr && ggml_is_contiguous(tensor));
        const auto n = static_cast<size_t>(ggml_nelements(tensor));
        if (ggml_backend_buffer_is_host(tensor->buffer)) {
            values_ = static_cast<T*>(tensor->data);
        } else {
            copy_.resize(n);
            values_ = copy_.data();
        }
    }
    InputWriter(const InputWriter&) = delete;
    InputWriter& operator=(const InputWriter&) = delete;
    ~InputWriter() {
        if (!copy_.empty()) {
            ggml_backend_tensor_set(tensor_, copy_.data(), 0, copy_.size() * sizeof(T));
        }
    }

    T* data() { return values_; }

private:
    ggml_tensor* tensor_;
    T* values_ = nullptr;
    std::vector<T> copy_;
};

template <class T, class Values>
void write_input(ggml_tensor* tensor, const Values& values) {
    InputWriter<T> writer(tensor);
    std::transform(values.begin(), values.end(), writer.data(),
                   [](auto value) { return static_cast<T>(value); });
}

}  // namespace cellar
