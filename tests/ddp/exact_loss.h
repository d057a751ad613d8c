// A loss whose gradients add up to the same bits in every order.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include "tests/ddp/layers.h"

namespace trainsys {

// Registered in this order, each of its own shape.
inline Tensors AddExact(torch::nn::Module& module) {
  return {module.register_parameter("first", at::full({2, 3}, 1.0f)),
          module.register_parameter("second", at::full({4}, 2.0f)),
          module.register_parameter("third", at::full({5}, 3.0f)),
          module.register_parameter("fourth", at::full({3, 1}, 4.0f))};
}

// Multiples of 1/8, others for every rank, micro-step, shape and element.
inline at::Tensor Slope(const at::Tensor& p, int rank, int micro_step) {
  const auto options = p.options().requires_grad(false);
  return at::arange(p.numel(), options).view(p.sizes()) / 8 +
         (16 * rank + 256 * micro_step + p.numel());
}

// The gradient of each parameter is its slope.
inline at::Tensor ExactLoss(const Tensors& parameters, int rank,
                            int micro_step = 0) {
  at::Tensor loss = at::zeros({});
  for (const at::Tensor& p : parameters) {
    loss = loss + (p * Slope(p, rank, micro_step)).sum();
  }
  return loss;
}

}  // namespace trainsys
