// Parameters as one flat buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trainsys/tensor/flat_layout.h"
#include "trainsys/zero/shard_plan.h"

namespace trainsys {

// Moves the parameters into one contiguous buffer, each starting on 64 bytes,
// and makes them refer to it; values, hooks and gradients stay.
// Errors: InvalidArgument if there are none, one is listed twice, or they are
// of more than one dtype or device, or other than f32 and f64.
class FlatParameters {
 public:
  explicit FlatParameters(std::vector<at::Tensor> parameters);

  // Where a parameter refers to other memory meanwhile, as after
  // torch::nn::Module::load: takes its values from there, and makes it refer to
  // the buffer again.
  // Errors: InvalidArgument if it is of another size or dtype now.
  void TakeBack();

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const at::Tensor& flat() const { return flat_; }  // [elems]
  int64_t elems() const { return layout_.elems; }   // padding included
  int64_t elem_bytes() const { return flat_.element_size(); }

  // Part of one parameter that lies inside a shard, in elements.
  struct Piece {
    size_t parameter = 0;
    int64_t begin = 0;     // from the parameter's first element
    int64_t in_shard = 0;  // from the shard's first element
    int64_t elems = 0;
  };
  // In order; padding lies between them.
  std::vector<Piece> PiecesOf(const Shard& shard) const;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<int64_t> elems_of_;  // each parameter
  FlatLayout layout_;
  at::Tensor flat_;
};

}  // namespace trainsys
