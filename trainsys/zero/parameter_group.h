// Parameters with optimizer options of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "trainsys/optim/optimizer_options.h"

namespace trainsys {

struct ParameterGroup {
  std::vector<at::Tensor> parameters;
  OptimizerOptions options;  // may be changed between steps, but for its kind
};

// The parameters of all groups, one group after another.
std::vector<at::Tensor> ParametersOf(const std::vector<ParameterGroup>& groups);

// The group of each parameter.
// Errors: InvalidArgument unless each of `parameters` is in exactly one group,
// and nothing else is in any.
std::vector<size_t> GroupOfEach(const std::vector<at::Tensor>& parameters,
                                const std::vector<ParameterGroup>& groups);

}  // namespace trainsys
