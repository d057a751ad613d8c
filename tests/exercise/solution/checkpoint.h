// Part 3 of docs/tutorial.md, solved.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace exercise {

using Segment = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor Checkpoint(const Segment& fn, const at::Tensor& x);

}  // namespace exercise
