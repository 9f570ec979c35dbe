#pragma once

#include <ggml-cpp.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gguf/gguf_file.h"
#include "model/offload.h"
#include "model/placement.h"

namespace cellar {

struct WeightsOptions {
    bool use_mmap = true;  // false: copy everything into memory of our own
    bool repack = true;    // false: leave out ggml's extra buffer types
    std::vector<Offload> offloads = {};
};

// Told the fraction of bytes loaded so far, from 0 to 1. Returning false cancels.
using Progress = std::function<bool(double fraction)>;

// The memory behind a model's tensors: the mapped file, and buffers for what does not lie in it.
// Tensors that a WeightsLoader gave out live exactly as long as this object; moving it keeps them.
class Weights {
public:
    Weights() = default;  // of no tensors
    Weights(Weights&&) noexcept = default;
    Weights& operator=(Weights&&) noexcept = default;

    // Bytes of tensors that are read where they lie in the file,
    size_t bytes_mapped() const { return bytes_mapped_; }
    // of buffers whose type rearranged them for faster products,
    size_t bytes_repacked() const { return bytes_repacked_; }
    // and of buffers that hold plain copies.
    size_t bytes_copied() const { return bytes_copied_; }
    size_t bytes() const { return bytes_mapped_ + bytes_repacked_ + bytes_copied_; }

private:
    friend class WeightsLoader;

    std::shared_ptr<const MappedFile> mapping_;  // declared first: what points into it goes first
    std::vector<ggml_context_ptr> contexts_;
    std::vector<ggml_backend_buffer_ptr> buffers_;
    size_t bytes_mapped_ = 0;
    size_t bytes_repacked_ = 0;
    size_t bytes_copied_ = 0;
};

// Loads the tensors that an architecture asks for, in two phases:
//
//     WeightsLoader loader(file, options);
//     ggml_tensor* norm = loader.require("output_norm.weight", {n_embd}, Use::kMul);
//     ggml_tensor* bias = loader.find("blk.0.attn_q.bias", {n_embd}, Use::kAdd);  // may be null
//     Result<Weights> weights = std::move(loader).load(progress);                  // reads the
//     bytes
//
// Asking costs nothing and never fails on the spot: the first problem is remembered and `load`
// returns it, so an architecture's list of tensors reads as a list. Until `load` has succeeded the
// tensors are null or without data; if it fails they are gone.
//
// A weight of an offloaded layer goes to the layer's device, unless that cannot compute with its
// type. Any other stays where it lies in the mapped file, unless an extra buffer type of ggml's
// wants it for its use: then it is rewritten there and its pages of the file are given back. Asked
// for one name with two uses, the loader gives one tensor if both can share it, else one for each
// (tied embeddings: a table in the file, and a repacked matrix).
class WeightsLoader {
public:
    // `file` must outlive the loader, not the Weights.
    explicit WeightsLoader(const GgufFile& file, WeightsOptions options = {});

    // The tensor `name`, which must have this shape. Missing or misshapen: kBadFile.
    // Of a type that `use` cannot read here: kUnsupported.
    ggml_tensor* require(std::string_view name, std::initializer_list<int64_t> ne, Use use);

    // The same, but null if the file has no such tensor.
    ggml_tensor* find(std::string_view name, std::initializer_list<int64_t> ne, Use use);

    bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }

    // Allocates buffers and fills them. `progress` may be empty.
    // Errors: the first problem of the phase before; kBackend if memory cannot be had; kCancelled.
    Result<Weights> load(const Progress& progress = {}) &&;

private:
    // Tensors that go into one buffer: one context for each kind of memory, as ggml allocates them.
    struct Group {
        ggml_context_ptr context;
        ggml_backend_buffer_type_t memory = nullptr;
        bool repacks = false;
        bool mapped = false;  // the buffer is the file itself
        std::vector<std::pair<ggml_tensor*, const TensorInfo*>> tensors;
    };

    class Filler;

    bool check_shape(const TensorInfo& info, std::initializer_list<int64_t> ne);
    ggml_tensor* place(const TensorInfo& info, Use use);
    ggml_backend_dev_t device_of(std::string_view name, Use use) const;
    Group* group_for(const Placement& placement, const TensorInfo& info);
    std::nullptr_t refuse(Code code, std::string message);

    const GgufFile& file_;
    const WeightsOptions options_;
    const std::vector<Placement> placements_;  // on the CPU
    std::vector<ggml_backend_dev_t> devices_;  // by layer, see place_layers

    std::vector<std::unique_ptr<Group>> groups_;
    std::map<std::pair<const TensorInfo*, const Group*>, ggml_tensor*> placed_;
    std::optional<Error> problem_;  // the first one
};

}  // namespace cellar
