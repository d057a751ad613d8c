#include "trainsys/model/transformer_lm.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

void CheckAtLeastOne(const char* name, int64_t value) {
  if (value >= 1) return;
  throw InvalidArgument(
      fmt::format("TransformerConfig: {} is {}; give at least 1", name, value));
}

TransformerConfig Checked(const TransformerConfig& c) {
  CheckAtLeastOne("vocab", c.vocab);
  CheckAtLeastOne("context", c.context);
  CheckAtLeastOne("dim", c.dim);
  CheckAtLeastOne("layers", c.layers);
  CheckAtLeastOne("heads", c.heads);
  CheckAtLeastOne("ffn", c.ffn);
  if (c.dim % (2 * c.heads) != 0) {
    throw InvalidArgument(fmt::format(
        "TransformerConfig: dim {} does not split into {} heads of even "
        "width; give a dim that is a multiple of {}",
        c.dim, c.heads, 2 * c.heads));
  }
  return c;
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

std::shared_ptr<Block> MakeBlock(const TransformerConfig& config,
                                 std::shared_ptr<const Positions> positions) {
  const double output_std = kInitialStd / std::sqrt(2.0 * config.layers);
  return std::make_shared<Block>(
      std::make_shared<Attention>(config.dim, config.heads, output_std,
                                  std::move(positions)),
      std::make_shared<FeedForward>(config.dim, config.ffn, output_std),
      config.dim);
}

at::Tensor CallBlock(const BlockFunction& fn, const at::Tensor& x) {
  return fn(x);
}

}  // namespace

int64_t ParameterCount(const TransformerConfig& config) {
  const int64_t dim = config.dim;
  const int64_t block = 4 * dim * dim + 3 * dim * config.ffn + 2 * dim;
  return 2 * config.vocab * dim + config.layers * block + dim;
}

TransformerLM::TransformerLM(const TransformerConfig& config,
                             BlockRunner run_block)
    : config_(Checked(config)),
      run_block_(run_block ? std::move(run_block) : BlockRunner(CallBlock)),
      embedding_(register_parameter("embedding",
                                    NormalWeight(config.vocab, config.dim))) {
  const auto positions = std::make_shared<const Positions>(
      config.context, config.heads, config.dim / config.heads);
  for (int64_t i = 0; i < config.layers; ++i) {
    blocks_.push_back(register_module("block" + std::to_string(i),
                                      MakeBlock(config, positions)));
  }
  final_norm_ =
      register_module("final_norm", std::make_shared<RmsNorm>(config.dim));
  output_ = register_module("output",
                            std::make_shared<Linear>(config.dim, config.vocab));
}

at::Tensor TransformerLM::Forward(const at::Tensor& tokens) const {
  CheckTokens("tokens", tokens, config_);
  CheckDtype(embedding_.scalar_type());
  at::Tensor x = at::embedding(embedding_, tokens);  // [B, T, D]
  for (const auto& block : blocks_) {
    x = run_block_(
        [block](const at::Tensor& input) { return block->Forward(input); }, x);
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
