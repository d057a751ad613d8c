#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <vector>

#include "trainsys/model/transformer_lm.h"

namespace trainsys {

// The model once more, as loops over doubles, written from the formulas:
// slow, and sharing nothing with the model but its parameters' names.
// Result: logits [T][V] of one row of tokens.
std::vector<std::vector<double>> ReferenceLogits(
    const torch::nn::Module& model, const TransformerConfig& config,
    const std::vector<int64_t>& tokens);

}  // namespace trainsys
