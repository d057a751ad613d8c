// The parameters of a module, as data parallelism sees them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace trainsys {

struct NamedTensors {
  std::vector<std::string> names;  // the module's own
  std::vector<at::Tensor> tensors;
};

// In registration order; a tied one once, under its first name.
NamedTensors ParametersOf(const torch::nn::Module& module);

// Those that require a gradient.
// Errors: InvalidArgument if there is none.
NamedTensors TrainedOf(const NamedTensors& parameters);

// Tells the rank's memory ledger what the module's tensors are.
void AttributeMemoryOf(const torch::nn::Module& module);

// The parameters of layers that make sparse gradients.
std::vector<std::string> SparseParametersOf(const torch::nn::Module& module);

// Errors: InvalidArgument, naming the first of them, if there are any.
void RefuseSparseGradients(const torch::nn::Module& module);

}  // namespace trainsys
