#include "machine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "machine.cpp"
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace cellar::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

float sum(const float* values, size_t n) {
    const hn::ScalableTag<float> d;
    constexpr size_t kLanes = HWY_LANES(float);
    auto a = hn::Zero(d), b = a, c = a, e = a;
    for (size_t i = 0; i + 4 * kLanes <= n; i += 4 * kLanes) {
        a = hn::Add(a, hn::Load(d, values + i));
        b = hn::Add(b, hn::Load(d, values + i + kLanes));
        c = hn::Add(c, hn::Load(d, values + i + 2 * kLanes));
        e = hn::Add(e, hn::Load(d, values + i + 3 * kLanes));
    }
    return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

// Twelve chains hide the latency of the multiply-adds. Returns how many operations were done.
double multiply(size_t n, float* out) {
    const hn::ScalableTag<float> d;
    constexpr size_t kChains = 12;
    hn::VFromD<decltype(d)> chains[kChains];
    for (auto& chain : chains)
        chain = hn::Set(d, 1.0f);
    const auto factor = hn::Set(d, 0.999f), term = hn::Set(d, 0.001f);
    for (size_t i = 0; i < n; i++) {
        for (auto& chain : chains)
            chain = hn::MulAdd(chain, factor, term);
    }
    for (auto& chain : chains)
        *out += hn::GetLane(hn::SumOfLanes(d, chain));
    return 2.0 * static_cast<double>(n * kChains * HWY_LANES(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace cellar::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cellar::bench {
namespace {

HWY_EXPORT(sum);
HWY_EXPORT(multiply);

constexpr int kPasses = 5;

// Seconds that the quickest of some passes takes, each thread with its number.
double seconds(int n_threads, const std::function<void(int)>& work) {
    double best = 1e9;
    for (int pass = 0; pass < kPasses; pass++) {
        const auto start = std::chrono::steady_clock::now();
        std::vector<std::thread> threads;
        for (int i = 0; i < n_threads; i++)
            threads.emplace_back(work, i);
        for (std::thread& thread : threads)
            thread.join();
        best = std::min(
            best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

volatile float sink;  // what is computed must look as if somebody read it

}  // namespace

size_t last_level_cache() {
    const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? static_cast<size_t>(bytes) : size_t{32} << 20;
}

double read_bandwidth(size_t bytes, int n_threads) {
    const size_t each = bytes / sizeof(float) / static_cast<size_t>(n_threads) / 64 * 64;
    std::vector<float> values(each * static_cast<size_t>(n_threads) + 16, 1.0f);
    float* first = values.data();
    while (reinterpret_cast<uintptr_t>(first) % 64 != 0)
        first++;
    const double best = seconds(n_threads, [&](int i) {
        sink = HWY_DYNAMIC_DISPATCH(sum)(first + static_cast<size_t>(i) * each, each);
    });
    return static_cast<double>(each * static_cast<size_t>(n_threads) * sizeof(float)) / best;
}

double peak_flops(int n_threads) {
    constexpr size_t kSteps = 20'000'000;
    std::vector<double> done(static_cast<size_t>(n_threads));
    const double best = seconds(n_threads, [&](int i) {
        float out = 0;
        done[static_cast<size_t>(i)] = HWY_DYNAMIC_DISPATCH(multiply)(kSteps, &out);
        sink = out;
    });
    return done[0] * n_threads / best;
}

}  // namespace cellar::bench
#endif
