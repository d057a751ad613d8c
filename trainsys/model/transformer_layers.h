#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "trainsys/model/positions.h"
#include "trainsys/model/segment_runner.h"
#include "trainsys/model/transformer_config.h"

namespace trainsys {

// The layers of TransformerLM, none with a bias.
// Letters: those of TransformerConfig, and K = D / H.
// Threads: one at a time for construction and conversion; Forward any thread.
// Random numbers: initial weights come from the thread's generator.

// x / sqrt(mean(x^2) + 1e-5) * weight, over the last dimension.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization".
class RmsNorm : public torch::nn::Module {
 public:
  explicit RmsNorm(int64_t dim);
  at::Tensor Forward(const at::Tensor& x) const;  // [B, T, D] -> [B, T, D]

 private:
  at::Tensor weight_;  // [D]
};

// x W^T. A module of its own, so that parameters() lists its weight where the
// layer stands: a module lists its own weights before its children's.
class Linear : public torch::nn::Module {
 public:
  Linear(int64_t inputs, int64_t outputs);
  at::Tensor Forward(const at::Tensor& x) const;  // [.., in] -> [.., out]

 private:
  at::Tensor weight_;  // [out, in]
};

// Causal multi-head attention with rotary positions.
class Attention : public torch::nn::Module {
 public:
  // `run_segment` runs the core of it (kAttentionCore), as block `block`'s.
  Attention(const TransformerConfig& config,
            std::shared_ptr<const Positions> positions, int64_t block,
            SegmentRunner run_segment);
  at::Tensor Forward(const at::Tensor& x) const;  // [B, T, D] -> [B, T, D]

 private:
  at::Tensor SplitHeads(const at::Tensor& x) const;
  at::Tensor JoinHeads(const at::Tensor& x) const;

  int64_t heads_;
  std::shared_ptr<const Positions> positions_;
  int64_t block_;
  SegmentRunner run_segment_;
  at::Tensor wq_, wk_, wv_, wo_;  // [D, D]
};

// SwiGLU: w2(SiLU(w1 x) * w3 x).
// Source: Shazeer, "GLU Variants Improve Transformer".
class FeedForward : public torch::nn::Module {
 public:
  explicit FeedForward(const TransformerConfig& config);
  at::Tensor Forward(const at::Tensor& x) const;  // [B, T, D] -> [B, T, D]

 private:
  at::Tensor w1_, w3_;  // [F, D]
  at::Tensor w2_;       // [D, F]
};

// x = x + Attention(RmsNorm(x)); x = x + FeedForward(RmsNorm(x)).
class Block : public torch::nn::Module {
 public:
  Block(std::shared_ptr<Attention> attention,
        std::shared_ptr<FeedForward> feed_forward, int64_t dim);
  at::Tensor Forward(const at::Tensor& x) const;  // [B, T, D] -> [B, T, D]

 private:
  std::shared_ptr<RmsNorm> attention_norm_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<RmsNorm> feed_forward_norm_;
  std::shared_ptr<FeedForward> feed_forward_;
};

// Standard deviation of every weight at the start, unless said otherwise.
inline constexpr double kInitialStd = 0.02;

// A new weight [rows, columns] of normal(0, std) numbers.
at::Tensor NormalWeight(int64_t rows, int64_t columns,
                        double std = kInitialStd);

}  // namespace trainsys
