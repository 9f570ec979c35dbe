#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace cellar {

// Room for the sums of one layer's attention, and for each thread some to compute in. All layers of
// all graphs that run one after another share it.
class AttentionWorkspace {
public:
    explicit AttentionWorkspace(uint32_t n_threads) : n_threads_(n_threads) {}

    // At least these sizes, in floats. What it held is lost if it grows: not while a graph runs.
    void reserve(size_t n_sums, size_t n_scratch);

    float* sums() const { return floats_.get(); }
    // Of one thread; aligned to 64 bytes.
    float* scratch(size_t thread) const { return floats_.get() + n_sums_ + thread * n_scratch_; }

    uint64_t bytes() const { return total() * sizeof(float); }

private:
    static constexpr std::align_val_t kAlignment{64};
    struct Free {
        void operator()(float* floats) const { ::operator delete[](floats, kAlignment); }
    };

    size_t total() const { return n_sums_ + n_threads_ * n_scratch_; }

    const uint32_t n_threads_;
    size_t n_sums_ = 0;  // multiples of 16
    size_t n_scratch_ = 0;
    std::unique_ptr<float[], Free> floats_;
};

}  // namespace cellar
