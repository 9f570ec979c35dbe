// Products with weights where the loader puts them, repacked or not, against the same numbers in
// double precision: for each type that the loader lets through.

#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "model/weights.h"
#include "testing/gguf_bytes.h"
#include "testing/scratch_file.h"

namespace cellar {
namespace {

using testing::GgufBytes;
using testing::ScratchFile;

constexpr int64_t kIn = 512;    // two blocks of the largest kind
constexpr int64_t kOut = 64;    // whole tiles of every repacked layout
constexpr int64_t kTokens = 7;  // uneven, so that rest rows of tiles are computed, too

std::vector<float> random_values(int64_t n, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values)
        value = normal(generator);
    return values;
}

bool is_tame(float value) {
    return std::abs(value) < 1e4f;  // not NaN, and squares stay far from overflow
}

// Rows of random bits, as often as it takes to get tame numbers: all bit patterns mean something.
std::vector<char> random_rows(ggml_type type) {
    std::mt19937 generator(1);
    const size_t bytes = ggml_row_size(type, kIn);
    std::vector<char> rows;
    std::vector<float> values(kIn);
    while (rows.size() < bytes * kOut) {
        std::vector<char> row(bytes);
        for (char& byte : row)
            byte = static_cast<char>(generator());
        ggml_get_type_traits(type)->to_float(row.data(), values.data(), kIn);
        if (std::all_of(values.begin(), values.end(), is_tame))
            rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
}

std::vector<char> quantized_rows(ggml_type type) {
    const auto values = random_values(kIn * kOut, 1);
    std::vector<char> rows(ggml_row_size(type, kIn) * kOut);
    ggml_quantize_chunk(type, values.data(), rows.data(), 0, kOut, kIn, nullptr);
    return rows;
}

// A GGUF file of one matrix "w" [kIn, kOut] of `type`.
std::string file_of(ggml_type type) {
    // ggml takes up to 20 seconds to make the tables for quantizing to iq1 and iq2.
    const std::string_view name = ggml_type_name(type);
    const bool slow = name.starts_with("iq1") || name.starts_with("iq2");
    const std::vector<char> rows = slow ? random_rows(type) : quantized_rows(type);
    return GgufBytes().tensor("w", {kIn, kOut}, type, 0).bytes({rows.data(), rows.size()});
}

struct Product {
    std::vector<float> y;  // [kOut, kTokens]
    size_t bytes_repacked;
};

// W x by ggml's CPU backend, with W placed by a loader.
Product multiply(const GgufFile& file, const WeightsOptions& options, const std::vector<float>& x) {
    WeightsLoader loader(file, options);
    ggml_tensor* w = loader.require("w", {kIn, kOut}, Use::kMulMat);
    const auto weights = std::move(loader).load();
    if (!weights) throw std::runtime_error(weights.error().message);

    const ggml_backend_ptr backend(ggml_backend_cpu_init());
    ggml_backend_cpu_set_n_threads(backend.get(), 2);
    const ggml_context_ptr context(
        ggml_init({ggml_tensor_overhead() * 8 + ggml_graph_overhead(), nullptr, true}));
    ggml_tensor* in = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, kIn, kTokens);
    ggml_tensor* out = ggml_mul_mat(context.get(), w, in);
    ggml_cgraph* graph = ggml_new_graph(context.get());
    ggml_build_forward_expand(graph, out);
    const ggml_backend_buffer_ptr buffer(
        ggml_backend_alloc_ctx_tensors(context.get(), backend.get()));
    ggml_backend_tensor_set(in, x.data(), 0, ggml_nbytes(in));
    if (ggml_backend_graph_compute(backend.get(), graph) != GGML_STATUS_SUCCESS)
        throw std::runtime_error("ggml cannot compute");

    Product product{std::vector<float>(kOut * kTokens), weights->bytes_repacked()};
    ggml_backend_tensor_get(out, product.y.data(), 0, ggml_nbytes(out));
    return product;
}

// The file's own numbers, [kIn, kOut].
std::vector<float> dequantized(const GgufFile& file) {
    const TensorInfo* info = file.find_tensor("w");
    const auto* bytes = file.mapping()->bytes().data() + info->offset;
    std::vector<float> w(kIn * kOut);
    if (info->type == GGML_TYPE_F32)
        std::memcpy(w.data(), bytes, info->bytes);
    else
        ggml_get_type_traits(info->type)->to_float(bytes, w.data(), kIn * kOut);
    return w;
}

// The largest difference between y and the product in doubles, in units of |w| |x|.
double error_of(const std::vector<float>& y, const std::vector<float>& w,
                const std::vector<float>& x) {
    double worst = 0;
    for (size_t t = 0; t < kTokens; ++t) {
        for (size_t o = 0; o < kOut; ++o) {
            double sum = 0, ww = 0, xx = 0;
            for (size_t i = 0; i < kIn; ++i) {
                const double a = w[o * kIn + i], b = x[t * kIn + i];
                sum += a * b;
                ww += a * a;
                xx += b * b;
            }
            worst = std::max(worst, std::abs(y[t * kOut + o] - sum) / std::sqrt(ww * xx));
        }
    }
    return worst;
}

// Types whose kernels UBSan stops, for loads and shifts that ggml means as they are.
bool stops_sanitizer([[maybe_unused]] std::string_view name) {
#if defined(__SANITIZE_ADDRESS__)
    return name == "iq1_s" || name == "iq3_s" || name == "q1_0";
#else
    return false;
#endif
}

std::vector<ggml_type> usable_types() {
    std::vector<ggml_type> types;
    for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
        const auto type = static_cast<ggml_type>(i);
        if (ggml_blck_size(type) == 0 || !usable(type, Use::kMulMat)) continue;
        if (!stops_sanitizer(ggml_type_name(type))) types.push_back(type);
    }
    return types;
}

class Repacking : public ::testing::TestWithParam<ggml_type> {};

// Kernels round x to 8 bits a value: an error of 1/254 of the largest in a block of 32 at most,
// which averages out over 512 products. 0.004 of |w| |x| is some six standard deviations.
TEST_P(Repacking, AgreesWithDoublesAndWithTheMappedMatrix) {
    const ScratchFile scratch(file_of(GetParam()));
    const GgufFile file = std::move(*GgufFile::open(scratch.path()));
    const auto x = random_values(kIn * kTokens, 2);
    const auto w = dequantized(file);

    const Product plain = multiply(file, {.repack = false}, x);
    const Product repacked = multiply(file, {.repack = true}, x);
    EXPECT_EQ(plain.bytes_repacked, 0u);
    EXPECT_LT(error_of(plain.y, w, x), 0.004);
    EXPECT_LT(error_of(repacked.y, w, x), 0.004);
    RecordProperty("repacked", repacked.bytes_repacked > 0 ? "yes" : "no");
}

INSTANTIATE_TEST_SUITE_P(Types, Repacking, ::testing::ValuesIn(usable_types()),
                         [](const auto& of) { return std::string(ggml_type_name(of.param)); });

// On a CPU that ggml repacks for, as a q4_0 matrix shows.
class WithRepacking : public ::testing::Test {
protected:
    void SetUp() override {
        const std::array<int64_t, 4> ne{kIn, kOut, 1, 1};
        const auto placement =
            choose_placement(cpu_placements(true), GGML_TYPE_Q4_0, ne, Use::kMulMat);
        if (!placement || !placement->repacks) GTEST_SKIP() << "ggml repacks nothing on this CPU";
    }

    const ScratchFile scratch_{file_of(GGML_TYPE_Q4_0)};
    const GgufFile file_ = std::move(*GgufFile::open(scratch_.path()));
};

TEST_F(WithRepacking, MatricesMoveAndTablesStay) {
    WeightsLoader loader(file_);
    ggml_tensor* table = loader.require("w", {kIn, kOut}, Use::kGetRows);
    ggml_tensor* matrix = loader.require("w", {kIn, kOut}, Use::kMulMat);
    EXPECT_NE(table, matrix);
    EXPECT_EQ(matrix, loader.require("w", {kIn, kOut}, Use::kMulMat));
    const auto weights = std::move(loader).load();
    ASSERT_TRUE(weights.has_value());
    EXPECT_FALSE(ggml_backend_buffer_is_host(matrix->buffer));
    EXPECT_TRUE(ggml_backend_buffer_is_host(table->buffer));
    const TensorInfo* info = file_.find_tensor("w");
    EXPECT_EQ(table->data, file_.mapping()->bytes().data() + info->offset);
    EXPECT_EQ(weights->bytes_mapped(), info->bytes);
    EXPECT_GE(weights->bytes_repacked(), info->bytes);
}

TEST_F(WithRepacking, CanBeSwitchedOff) {
    WeightsLoader loader(file_, {.repack = false});
    ggml_tensor* matrix = loader.require("w", {kIn, kOut}, Use::kMulMat);
    const auto weights = std::move(loader).load();
    ASSERT_TRUE(weights.has_value());
    EXPECT_TRUE(ggml_backend_buffer_is_host(matrix->buffer));
    EXPECT_EQ(weights->bytes_repacked(), 0u);
}

}  // namespace
}  // namespace cellar
