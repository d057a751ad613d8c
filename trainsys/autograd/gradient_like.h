// Which gradients a parameter can have.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainsys {

// Whoever sets a gradient may set anything. Is it dense, and of the parameter's
// shape and dtype?
bool IsLike(const at::Tensor& grad, const at::Tensor& parameter);

// Errors: InvalidArgument, with both sides, if it is not.
void RefuseUnlike(const at::Tensor& grad, const at::Tensor& parameter);

}  // namespace trainsys
