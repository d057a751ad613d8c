#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainsys/model/segment_runner.h"
#include "trainsys/model/transformer_config.h"
#include "trainsys/model/transformer_layers.h"

namespace trainsys {

// A decoder-only Transformer language model: embedding, pre-norm blocks with
// rotary attention and SwiGLU, final RMSNorm, untied output layer, no biases.
// Weights start as normal(0, 0.02), those that write into the residual stream
// divided by sqrt(2L), norms as 1.
//
// Computes in f32; to(torch::kFloat64) makes it an f64 model throughout.
// Threads: one thread at a time constructs, converts or runs it.
// Random numbers: initial weights come from the thread's generator.
// Errors: InvalidArgument for a config that Validate() refuses.
//
// parameters() is in the order of use: embedding, blocks, final norm, output.
//
//     auto model = std::make_shared<TransformerLM>(TransformerConfig{});
//     model->Loss(batch.tokens, batch.targets).backward();
class TransformerLM : public torch::nn::Module {
 public:
  // In each forward `run_segment` runs every block and, inside it, the core of
  // its attention; empty: calls them.
  explicit TransformerLM(const TransformerConfig& config,
                         SegmentRunner run_segment = {});

  // Shape: tokens [B, T] int64 in [0, V) -> logits [B, T, V]
  // Errors: InvalidArgument for another shape or dtype, T > context, or
  // parameters that are neither f32 nor f64.
  at::Tensor Forward(const at::Tensor& tokens) const;

  // Mean cross-entropy over all B * T positions, a scalar.
  // Units: nats a token.
  // Shape: tokens, targets [B, T] int64
  at::Tensor Loss(const at::Tensor& tokens, const at::Tensor& targets) const;

  const TransformerConfig& config() const { return config_; }

  // What every forward reads and nobody trains: the tables of Positions.
  std::vector<at::Tensor> constants() const { return positions_->tables(); }

 private:
  std::shared_ptr<Block> MakeBlock(int64_t index) const;

  TransformerConfig config_;
  SegmentRunner run_segment_;
  std::shared_ptr<const Positions> positions_;
  at::Tensor embedding_;  // [V, D]
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<RmsNorm> final_norm_;
  std::shared_ptr<Linear> output_;
};

}  // namespace trainsys
