// Where gradients are on their way from backward to the optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainsys/ddp/bucket_plan.h"
#include "trainsys/ddp/bucket_shards.h"
#include "trainsys/ddp/comm_hook.h"

namespace trainsys {

// What a rank has of the averaged gradients.
enum class GradientSharding {
  kNone,     // all of them: all-reduced
  kReduced,  // its shard of them, reduce-scattered; until then, all of its own
  kStored,   // its shard of them, and nothing else beside two buckets
};

// A gradient is brought to the store when it is ready; its bucket is closed
// when all of it have come, reduced over ranks, and kept. Buckets are closed in
// the order of the plan, and each is kept before the bucket num_buffers() after
// it is brought a gradient in its own turn.
//
// `parameters` below are indices into the list that the store is made for.
// Threads: the rank's own thread.
class GradientStore {
 public:
  virtual ~GradientStore() = default;
  GradientStore(const GradientStore&) = delete;
  GradientStore& operator=(const GradientStore&) = delete;

  virtual const std::vector<Bucket>& plan() const = 0;
  virtual size_t num_buffers() const = 0;
  // Has the parameter still the size and dtype that its place was made for?
  virtual bool Fits(size_t parameter) const = 0;

  // Before each forward. Where backward may not add to what there is, hides it.
  // Errors: Error where gradients must be dropped first, by Drop.
  virtual void Open() = 0;
  // Takes p.grad(), whoever made or replaced it. Result: whether there was one.
  // Where it is undefined, this rank contributes -0, which changes no sum.
  // Errors: InvalidArgument for a gradient of another shape or dtype than its
  // parameter.
  virtual bool Bring(size_t parameter) = 0;
  virtual FullBucket Close(size_t bucket) = 0;
  // The closed bucket has been reduced, and is to be divided by that first.
  virtual void Keep(size_t bucket, double divisor) = 0;
  // After all buckets are kept: makes the result p.grad(), as far as this rank
  // has all of it; undefined if not, or if no rank had a gradient.
  virtual void Show(size_t parameter, bool has_gradient) = 0;
  // All kept gradients of a bucket, by a number.
  virtual void Divide(size_t bucket, double divisor) = 0;
  // Forgets the gradients, p.grad() apart.
  virtual void Drop() = 0;
  // Has nothing been shown since Drop?
  virtual bool IsEmpty() const = 0;

  // After Show: part of the result, which this rank must have. Shape: [elems];
  // undefined if no rank had a gradient, or it was dropped since.
  // Errors: InvalidArgument as Bring.
  virtual at::Tensor Result(size_t parameter, int64_t begin,
                            int64_t elems) const = 0;
  // The same memory already when its bucket has been kept.
  virtual at::Tensor Reduced(size_t parameter, int64_t begin,
                             int64_t elems) const = 0;

  // Bytes of the storages in which gradients stay from step to step.
  virtual int64_t Bytes() const = 0;

 protected:
  GradientStore() = default;
};

std::vector<ParameterSize> SizesOf(const std::vector<at::Tensor>& parameters);

}  // namespace trainsys
