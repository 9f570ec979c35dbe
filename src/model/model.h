#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/rope.h"
#include "base/error.h"
#include "memory/memory.h"
#include "model/offload.h"
#include "model/rope_overrides.h"

struct ggml_tensor;

namespace cellar {

class GgufFile;
class StepGraph;

// What the rest of Cellar needs to know of a model. Its layers' KV is data: the memory knows no
// model.
struct ModelInfo {
    std::string architecture;
    std::string name;
    uint32_t n_ctx_train = 0;
    uint32_t n_vocab = 0;
    uint32_t n_embd = 0;
    uint32_t n_layer = 0;
    uint32_t n_pos = 1;            // components of a position
    uint32_t n_learned_pos = 0;    // positions that have an embedding each, from 0; 0: none has
    std::vector<LayerKv> layers;   // by layer
    std::vector<GroupKind> kinds;  // by group of layers, as in MemoryConfig
    uint64_t weight_bytes = 0;     // mapped, repacked and on devices, together
    // Beside the CPU, those that layers are on.
    std::vector<ggml_backend_device*> devices;
};

struct LoadOptions {
    bool use_mmap = true;
    bool repack = true;
    std::function<void(float)> progress;  // from 0 to 1, on the calling thread; may be empty
    RopeOverrides rope;
    std::vector<Offload> offloads;  // none: all layers are on the CPU
};

// A loaded model: its weights, and the graph of one step. One file per architecture implements it.
class Model {
public:
    virtual ~Model() = default;
    const ModelInfo& info() const { return info_; }

    // Adds one step to the graph and returns its logits, [n_vocab, n_outputs]. `graph` offers the
    // inputs (token ids, positions, output rows) and `attend` on the memory.
    virtual ggml_tensor* build(StepGraph& graph) const = 0;

    // How a layer's keys are turned in contexts of up to `n_ctx` tokens; nothing if they are not.
    virtual std::optional<Rope> rope(uint32_t layer, uint32_t n_ctx) const = 0;

protected:
    friend Result<std::unique_ptr<Model>> load_model(const GgufFile&, const LoadOptions&);
    ModelInfo info_;
};

// Reads the weights of `file`'s architecture. Errors: kUnsupported for an architecture that Cellar
// does not know or for a rope's values where positions turn nothing, kInvalidArgument for a rope's
// values that make no sense (override_rope), as place_layers for `offloads`, kBadFile for missing
// or misshapen tensors or absurd metadata.
Result<std::unique_ptr<Model>> load_model(const GgufFile& file, const LoadOptions& options);

}  // namespace cellar
