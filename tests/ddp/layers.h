// A small module and its reference, for tests of data parallelism.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trainsys {

using Tensors = std::vector<at::Tensor>;

// Equal seeds give equal values.
at::Tensor Random(uint64_t seed, at::IntArrayRef sizes,
                  at::ScalarType dtype = at::kFloat);

// Layers tanh(x w + b) of widths 8, 16, 16, 4, registered as w0, b0, w1, ...
Tensors AddLayers(torch::nn::Module& module, uint64_t seed,
                  const std::vector<at::ScalarType>& dtypes = {
                      at::kFloat, at::kFloat, at::kFloat});

// `parameters`: w, b, w, b, ...; x: [B, 8]
at::Tensor LayersLoss(const Tensors& parameters, const at::Tensor& x);

// Shape: [4, 8]
at::Tensor InputOf(int rank);

// Copies; undefined ones stay so.
Tensors GradientsOf(const Tensors& parameters);

// Reference A: the ranks' losses one after another, divided once. The
// parameters' gradients are dropped before and after.
Tensors MicroStepGradients(const Tensors& parameters, int ranks,
                           const std::function<at::Tensor(int rank)>& loss_of);

// The text of the E that `fn` throws, or "no error".
template <typename E>
std::string ErrorOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const E& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace trainsys
