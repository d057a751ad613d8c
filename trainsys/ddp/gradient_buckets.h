// The memory in which gradients live.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trainsys/ddp/bucket_plan.h"

namespace trainsys {

// One contiguous buffer for each bucket of a plan, and in it the place of each
// parameter's gradient. A gradient is brought to its place when it is ready,
// and from then on p.grad() is a tensor over that place: later backwards add
// to it where it is, and nobody copies it again.
//
// Memory: the buckets once, padding included, as gradients in the ledger; while
// a new gradient is brought to its place, that one gradient twice.
// Threads: the rank's own thread.
class GradientBuckets {
 public:
  // `order`: the parameters that get gradients, as PlanBuckets takes it.
  // Gradients that there are already are brought to their places, if they are
  // like their parameters.
  GradientBuckets(const std::vector<at::Tensor>& parameters,
                  const std::vector<size_t>& order, const BucketLimits& limits);

  const std::vector<Bucket>& plan() const { return plan_; }
  size_t size() const { return plan_.size(); }
  const std::string& label(size_t bucket) const { return labels_[bucket]; }
  bool IsF16(size_t bucket) const {
    return flat_[bucket].scalar_type() == at::kHalf;
  }
  // Shape: [plan()[bucket].layout.elems]
  const at::Tensor& flat(size_t bucket) const { return flat_[bucket]; }

  // Brings p.grad(), whoever made or replaced it, to its place: by one copy
  // unless it is there. Where it is undefined, its place becomes zero and it
  // stays undefined. Result: whether it is defined.
  // Errors: InvalidArgument for a gradient of another shape or dtype than its
  // parameter.
  bool Bring(size_t parameter);
  // Has the parameter still the size and dtype that its place was made for?
  bool Fits(size_t parameter) const;
  // Makes what is in its place the parameter's gradient.
  void Show(size_t parameter);

  // All gradients of a bucket, by a number.
  void Divide(size_t bucket, double divisor);

  // Bytes of the buckets' storages.
  int64_t Bytes() const;

 private:
  struct Place {
    size_t bucket = 0;
    int64_t offset = 0;  // in elements
    int64_t elems = 0;
    void* data = nullptr;
    at::Tensor gradient;  // over it
  };

  void MakeBucket(size_t bucket);
  // A tensor over the parameter's place, of its shape.
  at::Tensor Values(size_t parameter) const;

  std::vector<at::Tensor> parameters_;
  std::vector<Bucket> plan_;
  std::vector<std::string> labels_;
  std::vector<at::Tensor> flat_;
  std::vector<Place> places_;  // of each parameter
};

}  // namespace trainsys
