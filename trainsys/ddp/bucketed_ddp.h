// Data parallelism: gradients averaged over ranks, bucket by bucket, while
// backward is still running.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/ddp/bucket_plan.h"

namespace torch::nn {
class Module;
}

namespace trainsys {

struct BucketedDDPOptions {
  int64_t bucket_bytes = int64_t{25} << 20;
};

// Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data
// Parallel Training", VLDB 2020, section 3.2.
//
// Each bucket is one contiguous buffer in which its parameters' gradients
// live from the start. When the last gradient of a bucket has been
// accumulated, its hook posts an asynchronous average all-reduce of the
// buffer; buckets are posted in the order of the plan on every rank, on a
// channel of their own.
//
// Threads: the rank's own thread. Lifetime: holds the parameters and a channel
// of `comm`; the module and `comm` outlive it.
// Errors: the constructor throws InvalidArgument on every rank when the ranks'
// modules differ; errors of the collectives come out of backward() and
// FinishGradientSync as themselves.
//
// Example:
//   BucketedDDP ddp(*model, comm, {.bucket_bytes = 1 << 20});
//   loss.backward();
//   ddp.FinishGradientSync();  // p.grad() is now the mean over ranks
class BucketedDDP {
 public:
  // A collective: checks that the modules agree, then copies rank 0's
  // parameters and buffers to all ranks.
  BucketedDDP(torch::nn::Module& module, collectives::Communicator& comm,
              const BucketedDDPOptions& options = {});
  BucketedDDP(const BucketedDDP&) = delete;
  BucketedDDP& operator=(const BucketedDDP&) = delete;
  ~BucketedDDP();

  // Those that require a gradient, in registration order, tied ones once.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

  // Blocks until every bucket posted by this backward is averaged.
  // Errors: Error naming the parameters that got no gradient.
  void FinishGradientSync();

  // Sets the gradients to zero, in their buckets. Forgets a backward that
  // failed; blocks until its buckets that are in flight have ended.
  void ZeroGrad();

  // When each parameter's gradient was last ready, NowNs(); 0 if it never was.
  const std::vector<int64_t>& ready_ns() const { return ready_ns_; }
  // Bytes of the buckets' storages: all gradients, padding included.
  int64_t GradientBytes() const;

 private:
  void MakeBuckets(int64_t bucket_bytes);
  void AddHooks();
  void OnGradientReady(size_t parameter);
  void KeepInBucket(size_t parameter);
  void PostFullBuckets();
  void ForgetBackward();
  [[noreturn]] void ThrowMissing() const;

  std::unique_ptr<collectives::Communicator> comm_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;      // of each parameter
  std::vector<at::Tensor> flat_;       // of each bucket
  std::vector<at::Tensor> gradients_;  // of each parameter, inside flat_

  // Of the backward that is running, or ran last.
  std::vector<size_t> num_missing_;  // gradients, of each bucket
  std::vector<bool> is_ready_;       // of each parameter
  std::vector<int64_t> ready_ns_;
  std::vector<collectives::Work> works_;  // of the buckets posted so far

  std::vector<GradientHook> hooks_;  // last: gone before what they use
};

}  // namespace trainsys
