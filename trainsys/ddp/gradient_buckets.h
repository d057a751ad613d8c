// All gradients of a rank, bucket by bucket.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainsys/ddp/gradient_store.h"

namespace trainsys {

// One contiguous buffer for each bucket of a plan, and in it the place of each
// parameter's gradient. A gradient is brought to its place when it is ready,
// and from then on p.grad() is a tensor over that place: later backwards add
// to it where it is, and nobody copies it again.
//
// Memory: the buckets once, padding included, as gradients in the ledger; while
// a new gradient is brought to its place, that one gradient twice.
class GradientBuckets final : public GradientStore {
 public:
  // `order`: the parameters that get gradients, as PlanBuckets takes it.
  // Gradients that there are already are brought to their places, if they are
  // like their parameters. `sharded`: where only the owner of an element gets
  // its average.
  GradientBuckets(const std::vector<at::Tensor>& parameters,
                  const std::vector<size_t>& order, const BucketLimits& limits,
                  std::optional<ShardedParameters> sharded = std::nullopt);

  const std::vector<Bucket>& plan() const override { return plan_; }
  size_t num_buffers() const override { return plan_.size(); }
  bool Fits(size_t parameter) const override;

  void Open() override;
  bool Bring(size_t parameter) override;
  FullBucket Close(size_t bucket) override;
  void Keep(size_t bucket, double divisor) override;
  void Show(size_t parameter, bool has_gradient) override;
  void Divide(size_t bucket, double divisor) override;
  void Drop() override;
  bool IsEmpty() const override { return is_empty_; }

  at::Tensor Result(size_t parameter, int64_t begin,
                    int64_t elems) const override;
  at::Tensor Reduced(size_t parameter, int64_t begin,
                     int64_t elems) const override;
  int64_t Bytes() const override;

  // Shape: [plan()[bucket].layout.elems]
  const at::Tensor& flat(size_t bucket) const { return flat_[bucket]; }

 private:
  struct Place {
    size_t bucket = 0;
    int64_t offset = 0;  // in elements
    int64_t elems = 0;
    void* data = nullptr;
    at::Tensor gradient;        // over it
    bool is_wholly_own = true;  // all of it
    bool has_result = false;
  };

  void MakeBucket(size_t bucket);
  // A tensor over the parameter's place, of its shape.
  at::Tensor Values(size_t parameter) const;
  // Makes what is in its place the parameter's gradient.
  void Point(size_t parameter);

  std::vector<at::Tensor> parameters_;
  std::optional<ShardedParameters> sharded_;
  std::vector<Bucket> plan_;
  std::vector<BucketShards> shards_;  // of each bucket, where sharded
  std::vector<at::Tensor> flat_;
  std::vector<Place> places_;  // of each parameter
  bool is_empty_ = true;
};

}  // namespace trainsys
