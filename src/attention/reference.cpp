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

double score(std::span<const float> q, std::span<const float> k, double distance, double slope,
             const AttendParams& params) {
    double s = static_cast<double>(params.scale) * dot(q, k);
    if (params.softcap != 0.0f) s = params.softcap * std::tanh(s / params.softcap);
    return s - slope * distance;
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
        const double slope = alibi_slope(head, n_head, params.max_alibi_bias);
        double most = -std::numeric_limits<double>::infinity();
        for (size_t i = 0; i < rows.size(); i++) {
            weights[i] = score(q.subspan(head * dim_k, dim_k), rows[i].k.subspan(kv * dim_k, dim_k),
                               pos - rows[i].pos, slope, params);
            most = std::max(most, weights[i]);
        }
        double sum = 0;
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
