// Part 1 of docs/tutorial.md, solved.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/ddp/data_parallel.h"

namespace exercise {

class BucketedDDP final : public trainsys::DataParallel {
 public:
  BucketedDDP(torch::nn::Module& module, collectives::Communicator& comm,
              int64_t bucket_bytes);

  const std::vector<at::Tensor>& parameters() const override {
    return parameters_;
  }
  void BeginForward() override;
  void FinishGradientSync() override;

 private:
  struct Bucket {
    std::vector<size_t> parameters;
    size_t num_missing = 0;  // gradients of this backward
    at::Tensor flat;         // all its gradients, one after another
    collectives::Work work;
  };

  void FillBuckets(int64_t bucket_bytes);
  void OnGradientReady(size_t parameter);
  void Post(size_t number);
  void TakeBack(Bucket& bucket);

  const std::vector<at::Tensor> parameters_;
  const std::unique_ptr<collectives::Communicator> comm_;
  std::vector<Bucket> buckets_;    // in the order in which they get full
  std::vector<size_t> bucket_of_;  // of each parameter
  size_t num_posted_ = 0;
  bool is_syncing_ = false;
  std::vector<trainsys::GradientHook> hooks_;  // last: gone first
};

}  // namespace exercise
