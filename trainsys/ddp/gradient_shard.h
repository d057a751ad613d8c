// ZeRO-2: a rank's shard of the averaged gradients, and nothing else.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "trainsys/ddp/gradient_store.h"

namespace trainsys {

// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training
// Trillion Parameter Models", SC 2020, section 5.2.
//
// A gradient is copied into its bucket and freed. Two buffers take turns: one
// is filled while the other is reduce-scattered. A gradient that comes before
// its bucket's turn is held as it is until the bucket is closed. What is kept
// of a reduced bucket, this rank's part, is added to the shard: so each
// backward's average adds to those before, until Drop.
//
// Memory: as gradients in the ledger, the shard, padding included; as
// communication, two buffers of the largest bucket; and what is held.
class GradientShard final : public GradientStore {
 public:
  // `order`: the parameters that get gradients, as PlanBuckets takes it.
  GradientShard(const std::vector<at::Tensor>& parameters,
                const std::vector<size_t>& order, const BucketLimits& limits,
                ShardedParameters sharded);

  const std::vector<Bucket>& plan() const override { return plan_; }
  size_t num_buffers() const override { return buffers_.size(); }
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

 private:
  struct Place {
    size_t bucket = 0;
    int64_t in_bucket = 0;  // in elements
    int64_t in_shard = 0;   // in bytes; below 0 where it begins before
    int64_t elems = 0;
    at::ScalarType dtype = at::kFloat;
    bool is_wholly_own = false;  // all of it
    bool has_result = false;     // a rank had a gradient for it since Drop
    bool is_brought = false;     // into its bucket's buffer
    at::Tensor held;             // its gradient, if it came before its turn
    bool is_shown = false;       // as p.grad(), whose version that was then:
    int64_t version = 0;
  };

  void MakePlace(size_t bucket, size_t position);
  bool IsIn(const Place& place, const at::Tensor& grad) const;
  void MakeMemory();
  at::ScalarType DTypeOf(size_t bucket) const;
  // Shape: [plan()[bucket].layout.elems]
  at::Tensor Flat(size_t bucket) const;
  void Fill(size_t parameter, const at::Tensor& gradient);

  std::vector<at::Tensor> parameters_;
  ShardedParameters sharded_;
  std::vector<Bucket> plan_;
  std::vector<BucketShards> shards_;   // of each bucket
  std::vector<Place> places_;          // of each parameter
  std::array<at::Tensor, 2> buffers_;  // u8
  at::Tensor shard_;                   // u8 [own().bytes]
  size_t filling_ = 0;                 // the bucket that is closed next
  bool is_empty_ = true;
  bool is_spoiled_ = false;  // somebody has changed what was shown
};

}  // namespace trainsys
