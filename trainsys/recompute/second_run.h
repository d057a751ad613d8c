// The saved tensors of a segment's second run. Not for use outside this folder.
#pragma once

#include <torch/csrc/autograd/saved_variable.h>

#include <cstddef>
#include <vector>

#include "trainsys/autograd/saved_tensor_hooks.h"
#include "trainsys/recompute/segment.h"

namespace trainsys {

// While it lives, takes what the thread's operations save, in order, and
// compares each tensor with what the first run dropped. The second graph itself
// is never run.
// Errors: collectives::Error out of the operation that saves another tensor.
class SavedAgain {
 public:
  explicit SavedAgain(Segment& segment);

  const SavedTensorHookScope& hooks() const { return scope_; }

  // The tensors, empty where nobody needs one.
  // Errors: collectives::Error where the second run saved too few.
  std::vector<torch::autograd::SavedVariable> Finish();

 private:
  struct Hooks;

  void Record(const at::Tensor& t);
  void CheckNext(const at::Tensor& t) const;

  Segment& segment_;
  std::vector<torch::autograd::SavedVariable> tensors_;
  const SavedTensorHookScope scope_;
};

}  // namespace trainsys
