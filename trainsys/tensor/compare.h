// Lists of tensors against each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainsys {

// Copies that later steps do not change.
std::vector<at::Tensor> Snapshot(const std::vector<at::Tensor>& tensors);

// The largest absolute difference of any element; infinity for NaN or for
// lists of different shapes.
double MaxDifference(const std::vector<at::Tensor>& a,
                     const std::vector<at::Tensor>& b);

// Equal shapes, dtypes and bits (zeros of both signs differ, NaNs may agree);
// or both undefined.
bool EqualBits(const std::vector<at::Tensor>& a,
               const std::vector<at::Tensor>& b);

}  // namespace trainsys
