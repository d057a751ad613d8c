#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trainsys/model/transformer_layers.h"

namespace trainsys {

// Letters: V vocabulary, T positions (up to context), D dim, L layers,
// H heads, F ffn, B rows of a batch.
struct TransformerConfig {
  int64_t vocab = 256;
  int64_t context = 256;
  int64_t dim = 128;
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t ffn = 384;
};

// 2VD + L(4D^2 + 3DF + 2D) + D; 918,656 by default.
int64_t ParameterCount(const TransformerConfig& config);

// Runs one block: returns fn(x), by whatever means. A recomputing runner keeps
// only x and calls fn again in backward; fn stays valid when copied, also
// beyond the model's life.
using BlockFunction = std::function<at::Tensor(const at::Tensor&)>;
using BlockRunner =
    std::function<at::Tensor(const BlockFunction& fn, const at::Tensor& x)>;

// A decoder-only Transformer language model: embedding, pre-norm blocks with
// rotary attention and SwiGLU, final RMSNorm, untied output layer, no biases.
// Weights start as normal(0, 0.02), those that write into the residual stream
// divided by sqrt(2L), norms as 1.
//
// Computes in f32; to(torch::kFloat64) makes it an f64 model throughout.
// Threads: one thread at a time constructs, converts or runs it.
// Random numbers: initial weights come from the thread's generator.
// Errors: InvalidArgument where a size is below 1, dim is no multiple of
// heads, or a head's width is odd.
//
// parameters() is in the order of use: embedding, blocks, final norm, output.
//
//     auto model = std::make_shared<TransformerLM>(TransformerConfig{});
//     model->Loss(batch.tokens, batch.targets).backward();
class TransformerLM : public torch::nn::Module {
 public:
  // `run_block` is called once a block and forward; empty: calls fn(x).
  explicit TransformerLM(const TransformerConfig& config,
                         BlockRunner run_block = {});

  // Shape: tokens [B, T] int64 in [0, V) -> logits [B, T, V]
  // Errors: InvalidArgument for another shape or dtype, T > context, or
  // parameters that are neither f32 nor f64.
  at::Tensor Forward(const at::Tensor& tokens) const;

  // Mean cross-entropy over all B * T positions, a scalar.
  // Units: nats a token.
  // Shape: tokens, targets [B, T] int64
  at::Tensor Loss(const at::Tensor& tokens, const at::Tensor& targets) const;

  const TransformerConfig& config() const { return config_; }

 private:
  TransformerConfig config_;
  BlockRunner run_block_;
  at::Tensor embedding_;  // [V, D]
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<RmsNorm> final_norm_;
  std::shared_ptr<Linear> output_;
};

}  // namespace trainsys
