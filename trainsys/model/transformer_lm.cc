#include "trainsys/model/transformer_lm.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <fmt/format.h>

#include <string>
#include <utility>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

const TransformerConfig& Checked(const TransformerConfig& config) {
  Validate(config);
  return config;
}

void CheckTokens(const char* name, const at::Tensor& tokens,
                 const TransformerConfig& config) {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong) {
    throw InvalidArgument(fmt::format(
        "TransformerLM: {} have {} dimensions of {}; give [B, T] of int64",
        name, tokens.dim(), c10::toString(tokens.scalar_type())));
  }
  if (tokens.size(1) > config.context) {
    throw InvalidArgument(fmt::format(
        "TransformerLM: {} have {} positions, the model's context is {}; give "
        "shorter rows or a larger TransformerConfig::context",
        name, tokens.size(1), config.context));
  }
}

void CheckDtype(at::ScalarType dtype) {
  if (dtype == at::kFloat || dtype == at::kDouble) return;
  throw InvalidArgument(fmt::format(
      "TransformerLM: the parameters are {}, it computes in f32 or f64; "
      "convert it with to(torch::kFloat32)",
      c10::toString(dtype)));
}

SegmentFunction FunctionOf(std::shared_ptr<const Block> block) {
  return [block = std::move(block)](const std::vector<at::Tensor>& inputs) {
    return block->Forward(inputs[0]);
  };
}

at::Tensor Call(ModelPart, int64_t, const SegmentFunction& fn,
                const std::vector<at::Tensor>& inputs) {
  return fn(inputs);
}

}  // namespace

TransformerLM::TransformerLM(const TransformerConfig& config,
                             SegmentRunner run_segment)
    : config_(Checked(config)),
      run_segment_(run_segment ? std::move(run_segment) : SegmentRunner(Call)),
      positions_(std::make_shared<const Positions>(config.context, config.heads,
                                                   config.dim / config.heads)),
      embedding_(register_parameter("embedding",
                                    NormalWeight(config.vocab, config.dim))) {
  for (int64_t i = 0; i < config.layers; ++i) {
    blocks_.push_back(
        register_module("block" + std::to_string(i), MakeBlock(i)));
  }
  final_norm_ =
      register_module("final_norm", std::make_shared<RmsNorm>(config.dim));
  output_ = register_module("output",
                            std::make_shared<Linear>(config.dim, config.vocab));
}

std::shared_ptr<Block> TransformerLM::MakeBlock(int64_t index) const {
  // In this order they draw their weights, which is part of the numbers.
  auto feed_forward = std::make_shared<FeedForward>(config_);
  auto attention =
      std::make_shared<Attention>(config_, positions_, index, run_segment_);
  return std::make_shared<Block>(std::move(attention), std::move(feed_forward),
                                 config_.dim);
}

at::Tensor TransformerLM::Forward(const at::Tensor& tokens) const {
  CheckTokens("tokens", tokens, config_);
  CheckDtype(embedding_.scalar_type());
  at::Tensor x = at::embedding(embedding_, tokens);  // [B, T, D]
  for (int64_t i = 0; i < config_.layers; ++i) {
    x = run_segment_(ModelPart::kBlock, i, FunctionOf(blocks_[i]), {x});
  }
  return output_->Forward(final_norm_->Forward(x));  // [B, T, V]
}

at::Tensor TransformerLM::Loss(const at::Tensor& tokens,
                               const at::Tensor& targets) const {
  CheckTokens("targets", targets, config_);
  const at::Tensor logits = Forward(tokens);
  return at::cross_entropy_loss(logits.view({-1, config_.vocab}),
                                targets.reshape({-1}));
}

}  // namespace trainsys
