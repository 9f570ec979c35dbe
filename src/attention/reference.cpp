#include "attention/reference.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "attention/alibi.h"

namespace cellar {
namespace {

double dot(std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++)
        sum += static_cast<double>(a[i]) * b[i];
    return sum;
}

// What is added to a head's score of a key `distance` positions before the query.
double bias(uint32_t head, uint32_t n_head, Pos distance, const AttendParams& params) {
    const double slope = alibi_slope(head, n_head, params.max_alibi_bias);
    const double sloped = -slope * distance;
    if (params.bias == nullptr) return sloped;
    const auto* table = static_cast<const float*>(params.bias->data);
    return sloped + table[relative_bucket(params.buckets, distance, 0) * n_head + head];
}

double score(std::span<const float> q, std::span<const float> k, const AttendParams& params) {
    const double s = static_cast<double>(params.scale) * dot(q, k);
    return params.softcap == 0.0f ? s : params.softcap * std::tanh(s / params.softcap);
}

}  // namespace

std::vector<double> reference_attention(const LayerKv& layer, std::span<const float> q, Pos pos,
                                        std::span<const SeenRow> rows, const AttendParams& params) {
    assert(!rows.empty());
    const size_t dim_k = layer.head_dim_k, dim_v = layer.head_dim_v;
    const auto n_head = static_cast<uint32_t>(q.size() / dim_k);
    std::vector<double> out(n_head * dim_v, 0.0);
    std::vector<double> weights(rows.size());
    for (uint32_t head = 0; head < n_head; head++) {
        const size_t kv = head / (n_head / layer.n_head_kv);
        double most = -std::numeric_limits<double>::infinity();
        for (size_t i = 0; i < rows.size(); i++) {
            weights[i] = score(q.subspan(head * dim_k, dim_k), rows[i].k.subspan(kv * dim_k, dim_k),
                               params) +
                         bias(head, n_head, pos - rows[i].pos, params);
            most = std::max(most, weights[i]);
        }
        double sum = 0;
        if (params.sinks != nullptr)
            sum = std::exp(
                static_cast<double>(static_cast<const float*>(params.sinks->data)[head]) - most);
        for (double& weight : weights)
            sum += weight = std::exp(weight - most);
        for (size_t i = 0; i < rows.size(); i++) {
            for (size_t d = 0; d < dim_v; d++) {
                out[head * dim_v + d] += weights[i] / sum * rows[i].v[kv * dim_v + d];
            }
        }
    }
    return out;
}

std::vector<float> read_row(const ggml_tensor* pool, uint32_t row) {
    std::vector<uint8_t> bytes(pool->nb[1]);
    ggml_backend_tensor_get(pool, bytes.data(), row * bytes.size(), bytes.size());
    std::vector<float> values(static_cast<size_t>(pool->ne[0]));
    if (pool->type == GGML_TYPE_F32) {
        std::copy_n(reinterpret_cast<const float*>(bytes.data()), values.size(), values.data());
    } else {
        ggml_get_type_traits(pool->type)->to_float(bytes.data(), values.data(), pool->ne[0]);
    }
    return values;
}

}  // namespace cellar
