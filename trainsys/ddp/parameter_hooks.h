// "The gradient of parameter p is ready", for a list of parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "trainsys/autograd/gradient_hook.h"

namespace trainsys {

// Calls `on_ready` with a parameter's index; see GradientHook.
class ParameterHooks {
 public:
  using Callback = std::function<void(size_t parameter)>;

  ParameterHooks() = default;
  ParameterHooks(std::vector<at::Tensor> parameters, Callback on_ready);

  // Hooks again those parameters that were given other data meanwhile, and so
  // have lost their hook: torch::nn::Module::load does that. Before forward.
  // Cost: some 30 ns a parameter.
  void Renew();

 private:
  GradientHook Hook(size_t parameter) const;

  std::vector<at::Tensor> parameters_;
  Callback on_ready_;
  std::vector<GradientHook> hooks_;
};

}  // namespace trainsys
