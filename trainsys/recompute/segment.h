// The memory of one checkpointed segment: what checkpoint.cc shares between
// the segment's saved tensors. Not for use elsewhere.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "trainsys/recompute/checkpoint.h"

namespace trainsys {

// Numbers the tensors that the first run saves and drops them, runs the
// segment again when the first of them is asked for, and hands them out.
//
// Threads: Drop() on the forward's thread inside RunForward(); Get() and
//   Release() on any thread.
class Segment {
 public:
  // Call it where tensors are still saved by the enclosing scopes: the inputs
  // are theirs to count, to drop in turn, and to check for changes.
  Segment(CheckpointFunction fn, const std::vector<at::Tensor>& inputs);

  std::vector<at::Tensor> RunForward(const std::vector<at::Tensor>& inputs);

  // Takes note of the next saved tensor and returns its number.
  size_t Drop(const at::Tensor& t);

  // The tensor of that number, from the second run.
  at::Tensor Get(size_t index);

  // Nobody will ask for it again.
  void Release(size_t index);

 private:
  class Recorder;

  struct Saved {
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    bool is_needed = true;
    torch::autograd::SavedVariable tensor;  // empty until the second run
  };

  std::vector<at::Tensor> DetachedInputs() const;
  bool IsRecomputed();
  void Recompute(const std::vector<at::Tensor>& inputs);

  const CheckpointFunction fn_;
  const at::Generator generator_;
  const at::Tensor generator_state_;  // as the first run found it

  // Written by the constructor only.
  std::vector<torch::autograd::SavedVariable> inputs_;
  std::vector<bool> input_requires_grad_;

  std::mutex mutex_;  // guards the rest, once the forward has finished
  std::vector<Saved> saved_;
  bool is_forward_done_ = false;
  bool is_recomputed_ = false;
};

}  // namespace trainsys
