// The ggml that we built multiplies rightly in each of its weight buffers. GCC 12 once made its AMX
// kernels die with SIGILL (cmake/amx.cmake); a wrong guess about this machine would show here.
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace cellar {
namespace {

constexpr int64_t kWidth = 512;     // of a weight row: two of the widest quantization blocks
constexpr int64_t kHeight = 192;    // rows of weights
constexpr double kRounding = 1e-4;  // of activations to 8 bits: error over signal, both squared

std::vector<ggml_backend_buffer_type_t> weight_buffers() {
    std::vector<ggml_backend_buffer_type_t> all = {ggml_backend_cpu_buffer_type()};
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    auto extras =
        reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
    for (auto* next = extras ? extras(cpu) : nullptr; next && *next; ++next)
        all.push_back(*next);
    return all;
}

std::vector<float> normal(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> next;
    std::vector<float> values(n);
    std::generate(values.begin(), values.end(), [&] { return next(random); });
    return values;
}

// Weights of one type in one kind of buffer, [kHeight, kWidth], and the product with `n` tokens.
class Product {
public:
    Product(ggml_type type, ggml_backend_buffer_type_t buffers, int64_t n)
        : weights_context_(ggml_init({ggml_tensor_overhead(), nullptr, true})),
          context_(ggml_init({8 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true})),
          weights_(ggml_new_tensor_2d(weights_context_.get(), type, kWidth, kHeight)),
          tokens_(ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, kWidth, n)),
          product_(ggml_mul_mat(context_.get(), weights_, tokens_)) {
        weights_buffer_.reset(
            ggml_backend_alloc_ctx_tensors_from_buft(weights_context_.get(), buffers));
        buffer_.reset(ggml_backend_alloc_ctx_tensors(context_.get(), backend_.get()));
    }

    bool supported() const { return ggml_backend_supports_op(backend_.get(), product_); }

    // The squared error over the squared truth, in double precision over the same weights.
    double error() {
        const std::vector<float> weights = set_weights();
        const std::vector<float> tokens = normal(static_cast<size_t>(ggml_nelements(tokens_)), 2);
        ggml_backend_tensor_set(tokens_, tokens.data(), 0, ggml_nbytes(tokens_));
        ggml_cgraph* graph = ggml_new_graph(context_.get());
        ggml_build_forward_expand(graph, product_);
        ggml_backend_cpu_set_n_threads(backend_.get(), 2);
        EXPECT_EQ(ggml_backend_graph_compute(backend_.get(), graph), GGML_STATUS_SUCCESS);
        return compare(weights, tokens);
    }

private:
    // Quantizes random weights into the buffer; returns them as they read back.
    std::vector<float> set_weights() {
        const auto count = static_cast<size_t>(kWidth * kHeight);
        std::vector<float> weights = normal(count, 1);
        std::vector<char> packed(ggml_nbytes(weights_));
        ggml_quantize_chunk(weights_->type, weights.data(), packed.data(), 0, kHeight, kWidth,
                            nullptr);
        ggml_backend_tensor_set(weights_, packed.data(), 0, packed.size());
        ggml_get_type_traits(weights_->type)
            ->to_float(packed.data(), weights.data(), kWidth * kHeight);
        return weights;
    }

    double compare(const std::vector<float>& weights, const std::vector<float>& tokens) const {
        std::vector<float> got(static_cast<size_t>(ggml_nelements(product_)));
        ggml_backend_tensor_get(product_, got.data(), 0, ggml_nbytes(product_));
        double error = 0;
        double truth = 0;
        for (size_t i = 0; i < got.size(); ++i) {
            const float* row = &weights[i % kHeight * kWidth];
            const float* token = &tokens[i / kHeight * kWidth];
            double sum = 0;
            for (int64_t k = 0; k < kWidth; ++k)
                sum += double{row[k]} * double{token[k]};
            error += (sum - double{got[i]}) * (sum - double{got[i]});
            truth += sum * sum;
        }
        return error / truth;
    }

    ggml_backend_ptr backend_{ggml_backend_cpu_init()};
    ggml_context_ptr weights_context_;
    ggml_context_ptr context_;
    ggml_tensor* weights_;  // [kHeight, kWidth]
    ggml_tensor* tokens_;   // [n, kWidth]
    ggml_tensor* product_;  // [n, kHeight]
    ggml_backend_buffer_ptr weights_buffer_;
    ggml_backend_buffer_ptr buffer_;
};

class Products : public testing::TestWithParam<ggml_type> {};

TEST_P(Products, AreRightInEveryWeightBuffer) {
    for (ggml_backend_buffer_type_t buffers : weight_buffers()) {
        for (int64_t n : {1, 2, 17, 70}) {
            Product product(GetParam(), buffers, n);
            if (!product.supported()) continue;
            EXPECT_LT(product.error(), kRounding) << ggml_backend_buft_name(buffers) << ", " << n;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, Products,
                         testing::Values(GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q8_0,
                                         GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K),
                         [](const auto& type) { return std::string(ggml_type_name(type.param)); });

}  // namespace
}  // namespace cellar
