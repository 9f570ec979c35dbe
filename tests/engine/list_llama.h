#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"
#include "engine/sharing_llama.h"
#include "gguf/gguf_file.h"

namespace cellar::testing {

// A llama with f32 weights, one token at a time in double precision, over a plain list of cells: a
// cell is what was computed when its token was appended, and stands where the list says. Keys are
// recorded before rope and turned to their cell's position whenever they are read, so whoever edits
// a list has edited the memory. Slow, and plainly right; for models of unscaled rope.
class ListLlama {
public:
    using Numbers = std::vector<double>;

    // What one token left behind: for each layer key (before rope) and value,
    // [n_head_kv * head_dim]; empty for layers that keep none.
    struct Kv {
        std::vector<Numbers> k, v;
    };
    struct Cell {
        Pos pos = 0;
        std::shared_ptr<const Kv> kv;
    };
    using List = std::vector<Cell>;

    // `owners`: see SharingLlama; empty: every layer attends to its own.
    explicit ListLlama(const std::string& path, Owners owners = {})
        : file_(std::move(*GgufFile::open(path))), owners_(std::move(owners)) {
        n_layer_ = count("llama.block_count");
        n_head_ = count("llama.attention.head_count");
        n_head_kv_ = count("llama.attention.head_count_kv");
        head_dim_ = count("llama.attention.key_length");
        eps_ = *file_.real("llama.attention.layer_norm_rms_epsilon");
        freq_base_ = *file_.real("llama.rope.freq_base");
        for (auto i = static_cast<uint32_t>(owners_.size()); i < n_layer_; i++)
            owners_.push_back(i);
        factors_ = tensor("rope_freqs.weight");
        if (factors_.empty()) factors_.assign(head_dim_ / 2, 1.0);
    }

    static Pos next_pos(const List& list) {
        Pos last = -1;
        for (const Cell& cell : list)
            last = std::max(last, cell.pos);
        return last + 1;
    }

    // Appends a token behind all that the list holds. Returns its logits.
    Numbers append(List& list, Token token) const {
        const Pos pos = next_pos(list);
        const Numbers table = tensor("token_embd.weight");
        const size_t n_embd = tensor("output_norm.weight").size();
        const auto row = table.begin() + static_cast<ptrdiff_t>(n_embd) * token;
        Numbers x(row, row + static_cast<ptrdiff_t>(n_embd));
        auto kv = std::make_shared<Kv>();
        list.push_back({pos, kv});
        for (size_t layer = 0; layer < n_layer_; layer++) {
            const std::string name = "blk." + std::to_string(layer) + ".";
            const Numbers normed = norm(x, name + "attn_norm.weight");
            const bool keeps = owners_[layer] == layer;
            kv->k.push_back(keeps ? linear(normed, name + "attn_k") : Numbers());
            kv->v.push_back(keeps ? linear(normed, name + "attn_v") : Numbers());
            if (owners_[layer]) {
                const Numbers q = linear(normed, name + "attn_q");
                add(x, linear(attend(q, pos, list, *owners_[layer]), name + "attn_output"));
            }
            add(x, feed_forward(norm(x, name + "ffn_norm.weight"), name));
        }
        return linear(norm(x, "output_norm.weight"), "output");
    }

private:
    size_t count(const char* key) const { return static_cast<size_t>(*file_.integer(key)); }

    // Empty if the file has no such tensor.
    Numbers tensor(const std::string& name) const {
        const TensorInfo* info = file_.find_tensor(name);
        if (info == nullptr) return {};
        EXPECT_EQ(info->type, GGML_TYPE_F32) << name;
        std::vector<float> values(info->bytes / sizeof(float));
        std::memcpy(values.data(), file_.mapping()->bytes().data() + info->offset, info->bytes);
        return {values.begin(), values.end()};
    }

    Numbers product(const Numbers& x, const std::string& name) const {
        const Numbers weight = tensor(name + ".weight");
        Numbers y(weight.size() / x.size());
        for (size_t i = 0; i < y.size(); i++) {
            const auto row = weight.begin() + static_cast<ptrdiff_t>(i * x.size());
            y[i] = std::inner_product(x.begin(), x.end(), row, 0.0);
        }
        return y;
    }

    void scale(Numbers& y, const std::string& name) const {
        const Numbers scale = tensor(name + ".scale");
        for (size_t i = 0; i < y.size() && !scale.empty(); i++)
            y[i] *= scale[0];
    }

    void add_bias(Numbers& y, const std::string& name) const {
        const Numbers bias = tensor(name + ".bias");
        if (!bias.empty()) add(y, bias);
    }

    Numbers linear(const Numbers& x, const std::string& name) const {
        Numbers y = product(x, name);
        scale(y, name);
        add_bias(y, name);
        return y;
    }

    // A feed-forward product is scaled after its bias.
    Numbers linear_in_ffn(const Numbers& x, const std::string& name) const {
        Numbers y = product(x, name);
        add_bias(y, name);
        scale(y, name);
        return y;
    }

    Numbers norm(Numbers x, const std::string& name) const {
        const Numbers weight = tensor(name);
        const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
        const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps_);
        for (size_t i = 0; i < x.size(); i++)
            x[i] *= factor * weight[i];
        return x;
    }

    Numbers feed_forward(const Numbers& x, const std::string& name) const {
        Numbers gate = linear_in_ffn(x, name + "ffn_gate");
        const Numbers up = linear_in_ffn(x, name + "ffn_up");
        for (size_t i = 0; i < gate.size(); i++)
            gate[i] *= up[i] / (1 + std::exp(-gate[i]));
        return linear_in_ffn(gate, name + "ffn_down");
    }

    static void add(Numbers& x, const Numbers& y) {
        for (size_t i = 0; i < x.size(); i++)
            x[i] += y[i];
    }

    // One head of width head_dim, turned to a position: neighbouring pairs.
    Numbers turned(const Numbers& heads, size_t head, Pos pos) const {
        const auto begin = heads.begin() + static_cast<ptrdiff_t>(head * head_dim_);
        Numbers out(begin, begin + static_cast<ptrdiff_t>(head_dim_));
        for (size_t pair = 0; pair < head_dim_ / 2; pair++) {
            const double exponent =
                -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim_);
            const double angle = pos * std::pow(freq_base_, exponent) / factors_[pair];
            const double a = out[2 * pair], b = out[2 * pair + 1];
            out[2 * pair] = a * std::cos(angle) - b * std::sin(angle);
            out[2 * pair + 1] = a * std::sin(angle) + b * std::cos(angle);
        }
        return out;
    }

    Numbers attend(const Numbers& q, Pos pos, const List& list, size_t layer) const {
        Numbers out;
        for (size_t head = 0; head < n_head_; head++) {
            const size_t head_kv = head / (n_head_ / n_head_kv_);
            const Numbers query = turned(q, head, pos);
            Numbers weights;
            for (const Cell& cell : list) {
                const Numbers key = turned(cell.kv->k[layer], head_kv, cell.pos);
                const double product =
                    std::inner_product(key.begin(), key.end(), query.begin(), 0.0);
                weights.push_back(std::exp(product / std::sqrt(static_cast<double>(head_dim_))));
            }
            const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
            Numbers mixed(head_dim_, 0.0);
            for (size_t i = 0; i < list.size(); i++)
                for (size_t d = 0; d < head_dim_; d++)
                    mixed[d] += weights[i] / sum * list[i].kv->v[layer][head_kv * head_dim_ + d];
            out.insert(out.end(), mixed.begin(), mixed.end());
        }
        return out;
    }

    GgufFile file_;
    Owners owners_;
    size_t n_layer_ = 0, n_head_ = 0, n_head_kv_ = 0, head_dim_ = 0;
    double eps_ = 0, freq_base_ = 0;
    Numbers factors_;  // [head_dim / 2] that a pair's frequency is divided by
};

}  // namespace cellar::testing
