#include "tests/ddp/layers.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>

#include "trainsys/random/rank_generator.h"

namespace trainsys {

at::Tensor Random(uint64_t seed, at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randn(sizes, MakeRankGenerator(seed, 0, 0)).to(dtype);
}

Tensors AddLayers(torch::nn::Module& module, uint64_t seed,
                  const std::vector<at::ScalarType>& dtypes) {
  const std::vector<int64_t> widths{8, 16, 16, 4};
  Tensors parameters;
  for (size_t i = 0; i < 3; ++i) {
    const std::string number = std::to_string(i);
    const uint64_t own_seed = 10 * seed + i;
    parameters.push_back(module.register_parameter(
        "w" + number,
        Random(own_seed, {widths[i], widths[i + 1]}, dtypes[i]) * 0.3));
    parameters.push_back(module.register_parameter(
        "b" + number, Random(own_seed + 5, {widths[i + 1]}, dtypes[i])));
  }
  return parameters;
}

at::Tensor LayersLoss(const Tensors& parameters, const at::Tensor& x) {
  at::Tensor h = x;
  for (size_t i = 0; i < parameters.size(); i += 2) {
    const at::Tensor& w = parameters[i];
    h = (at::matmul(h.to(w.scalar_type()), w) + parameters[i + 1]).tanh();
  }
  return h.square().mean();
}

at::Tensor InputOf(int rank) {
  return Random(1000 + static_cast<uint64_t>(rank), {4, 8});
}

Tensors GradientsOf(const Tensors& parameters) {
  Tensors gradients;
  for (const at::Tensor& p : parameters) {
    gradients.push_back(p.grad().defined() ? p.grad().detach().clone()
                                           : at::Tensor());
  }
  return gradients;
}

Tensors MicroStepGradients(const Tensors& parameters, int ranks,
                           const std::function<at::Tensor(int rank)>& loss_of) {
  for (const at::Tensor& p : parameters) p.mutable_grad().reset();
  for (int rank = 0; rank < ranks; ++rank) loss_of(rank).backward();
  for (const at::Tensor& p : parameters) {
    if (p.grad().defined()) p.grad().div_(ranks);
  }
  Tensors gradients = GradientsOf(parameters);
  for (const at::Tensor& p : parameters) p.mutable_grad().reset();
  return gradients;
}

}  // namespace trainsys
