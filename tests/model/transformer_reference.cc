#include "tests/model/transformer_reference.h"

#include <cmath>
#include <string>

namespace trainsys {
namespace {

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;  // one vector a position

class Reference {
 public:
  Reference(const torch::nn::Module& model, const TransformerConfig& config)
      : parameters_(model.named_parameters()), config_(config) {}

  Rows Logits(const std::vector<int64_t>& tokens) const {
    const at::Tensor embedding = parameters_["embedding"];
    Rows x;
    for (int64_t token : tokens) {
      Vector row;
      for (int64_t d = 0; d < config_.dim; ++d) {
        row.push_back(embedding[token][d].item<double>());
      }
      x.push_back(row);
    }
    for (int64_t i = 0; i < config_.layers; ++i) {
      const std::string block = "block" + std::to_string(i) + ".";
      AddTo(x, Attention(block + "attention.",
                         Norm(block + "attention_norm.weight", x)));
      AddTo(x, FeedForward(block + "feed_forward.",
                           Norm(block + "feed_forward_norm.weight", x)));
    }
    return Product("output.weight", Norm("final_norm.weight", x));
  }

 private:
  static void AddTo(Rows& x, const Rows& y) {
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t d = 0; d < x[t].size(); ++d) x[t][d] += y[t][d];
    }
  }

  Rows Product(const std::string& name, const Rows& x) const {
    const at::Tensor weight = parameters_[name].contiguous();  // [out, in]
    const double* w = weight.data_ptr<double>();
    const size_t outputs = weight.size(0), inputs = weight.size(1);
    Rows y(x.size(), Vector(outputs));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t o = 0; o < outputs; ++o) {
        for (size_t i = 0; i < inputs; ++i) {
          y[t][o] += w[o * inputs + i] * x[t][i];
        }
      }
    }
    return y;
  }

  Rows Norm(const std::string& name, const Rows& x) const {
    const at::Tensor weight = parameters_[name];
    Rows y = x;
    for (Vector& row : y) {
      double squares = 0;
      for (double v : row) squares += v * v;
      const double root = std::sqrt(squares / row.size() + 1e-5);
      for (size_t d = 0; d < row.size(); ++d) {
        row[d] *= weight[d].item<double>() / root;
      }
    }
    return y;
  }

  void Rotate(Rows& x) const {
    const int64_t width = config_.dim / config_.heads;
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t d = 0; d < config_.dim; d += 2) {
        const double angle =
            t / std::pow(10000.0, static_cast<double>(d % width) / width);
        const double a = x[t][d], b = x[t][d + 1];
        x[t][d] = a * std::cos(angle) - b * std::sin(angle);
        x[t][d + 1] = a * std::sin(angle) + b * std::cos(angle);
      }
    }
  }

  // One head's row of the result: sum over s <= t of softmax(q k)[s] v[s].
  void Attend(const Rows& q, const Rows& k, const Rows& v, size_t t,
              int64_t first, Vector& out) const {
    const int64_t width = config_.dim / config_.heads;
    Vector weight(t + 1);
    double sum = 0;
    for (size_t s = 0; s <= t; ++s) {
      double dot = 0;
      for (int64_t d = first; d < first + width; ++d) dot += q[t][d] * k[s][d];
      sum += weight[s] = std::exp(dot / std::sqrt(width));
    }
    for (size_t s = 0; s <= t; ++s) {
      for (int64_t d = first; d < first + width; ++d) {
        out[d] += weight[s] / sum * v[s][d];
      }
    }
  }

  Rows Attention(const std::string& prefix, const Rows& x) const {
    Rows q = Product(prefix + "wq", x), k = Product(prefix + "wk", x);
    const Rows v = Product(prefix + "wv", x);
    Rotate(q);
    Rotate(k);
    Rows mixed(x.size(), Vector(config_.dim));
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t h = 0; h < config_.heads; ++h) {
        Attend(q, k, v, t, h * (config_.dim / config_.heads), mixed[t]);
      }
    }
    return Product(prefix + "wo", mixed);
  }

  Rows FeedForward(const std::string& prefix, const Rows& x) const {
    Rows gate = Product(prefix + "w1", x);
    const Rows up = Product(prefix + "w3", x);
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t f = 0; f < gate[t].size(); ++f) {
        const double g = gate[t][f];
        gate[t][f] = g / (1 + std::exp(-g)) * up[t][f];
      }
    }
    return Product(prefix + "w2", gate);
  }

  torch::OrderedDict<std::string, at::Tensor> parameters_;
  TransformerConfig config_;
};

}  // namespace

std::vector<std::vector<double>> ReferenceLogits(
    const torch::nn::Module& model, const TransformerConfig& config,
    const std::vector<int64_t>& tokens) {
  return Reference(model, config).Logits(tokens);
}

}  // namespace trainsys
