#include "testing/seen_hash.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <xxhash.h>

#include <memory>
#include <vector>

namespace cellar::testing {

namespace {

struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

class Hash {
public:
    Hash() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }

    template <class T>
    void add(const T& value) {
        XXH3_64bits_update(state_.get(), &value, sizeof(value));
    }
    void add_row(const ggml_tensor* pool, uint32_t row) {
        row_.resize(pool->nb[1]);
        ggml_backend_tensor_get(pool, row_.data(), row * row_.size(), row_.size());
        XXH3_64bits_update(state_.get(), row_.data(), row_.size());
    }
    uint64_t digest() const { return XXH3_64bits_digest(state_.get()); }

private:
    std::unique_ptr<XXH3_state_t, FreeState> state_;
    std::vector<uint8_t> row_;
};

}  // namespace

uint64_t seen_hash(const Memory& memory, SeqId seq) {
    const Cells& cells = memory.cells();
    Hash hash;
    for (uint32_t layer = 0; layer < memory.config().layers.size(); layer++) {
        if (!memory.keeps(layer)) continue;
        const uint32_t group = memory.config().layers[layer].group;
        for (const Span& span : cells.spans(seq, group)) {
            for (uint32_t i = 0; i < span.count; i++) {
                const uint32_t row =
                    value(span.page) * cells.pool(group).page_size() + span.first + i;
                hash.add(cells.pos(group, span, i));
                hash.add_row(memory.k(layer), row);
                hash.add_row(memory.v(layer), row);
            }
        }
    }
    return hash.digest();
}

}  // namespace cellar::testing
