// Parameters as one flat buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "collectives/buffer.h"
#include "trainsys/zero/shard_plan.h"

namespace trainsys {

// Moves the parameters into one contiguous buffer of bytes, where the plan has
// them, and makes them refer to it; values, hooks and gradients stay.
// Errors: InvalidArgument if there are none, one is listed twice, they are on
// several devices, or of dtypes other than f32 and f64.
class FlatParameters {
 public:
  // `plan`: of BytesOfEach(parameters).
  FlatParameters(std::vector<at::Tensor> parameters, ShardPlan plan);

  // Where a parameter refers to other memory meanwhile, as after
  // torch::nn::Module::load: takes its values from there, and makes it refer to
  // the buffer again.
  // Errors: InvalidArgument if it is of another size or dtype now.
  void TakeBack();
  bool IsInPlace(size_t parameter) const;

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const ShardPlan& plan() const { return plan_; }
  const at::Tensor& flat() const { return flat_; }  // u8 [plan().bytes]
  // A stretch of it, to be moved by a collective.
  collectives::Buffer Part(int64_t begin, int64_t bytes) const;

 private:
  std::vector<at::Tensor> parameters_;
  ShardPlan plan_;
  std::vector<at::ScalarType> dtypes_;
  at::Tensor flat_;
};

}  // namespace trainsys
