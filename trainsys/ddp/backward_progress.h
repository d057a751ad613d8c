// Which gradients the running backward has brought so far. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainsys/ddp/bucket_plan.h"

namespace trainsys {

// Threads: the rank's own thread. Cost: O(1) a gradient.
class BackwardProgress {
 public:
  explicit BackwardProgress(size_t parameters)
      : is_used_(parameters), is_ready_(parameters), ready_ns_(parameters) {}

  // Before any gradient is ready: the buckets are those of `plan`, in which
  // every parameter is once.
  void SetPlan(std::span<const Bucket> plan);
  // Forgets the backward and what was used.
  void Restart();

  // The parameter has a gradient, of this backward or of a micro-step before.
  void MarkUsed(size_t parameter) { is_used_[parameter] = true; }
  // The synchronized backward has come to the parameter: once in each.
  void MarkReady(size_t parameter, int64_t now_ns);

  bool HasBegun() const { return !order_.empty(); }
  bool IsReady(size_t parameter) const { return is_ready_[parameter]; }
  size_t BucketOf(size_t parameter) const { return bucket_of_[parameter]; }
  bool IsFull(size_t bucket) const { return num_missing_[bucket] == 0; }
  const std::vector<bool>& is_used() const { return is_used_; }
  // Those that are ready, in the order in which they got so.
  const std::vector<size_t>& order() const { return order_; }
  // When each parameter was ready, the last time; 0 if it never was.
  const std::vector<int64_t>& ready_ns() const { return ready_ns_; }

 private:
  std::vector<bool> is_used_;
  std::vector<bool> is_ready_;
  std::vector<int64_t> ready_ns_;
  std::vector<size_t> order_;
  std::vector<size_t> bucket_of_;    // of each parameter
  std::vector<size_t> num_missing_;  // gradients, of each bucket
  std::vector<size_t> bucket_sizes_;
};

// `seen`, and after it the other parameters in the reverse of registration.
std::vector<size_t> CompleteOrder(std::vector<size_t> seen, size_t parameters);

}  // namespace trainsys
