// Yours to write: docs/tutorial.md, part 1.
//
// Averages gradients over ranks, bucket by bucket, while backward is running.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/ddp/data_parallel.h"

namespace exercise {

class BucketedDDP final : public trainsys::DataParallel {
 public:
  // Called on all ranks. `bucket_bytes`: the most that a bucket holds, but for
  // one with a single larger gradient.
  BucketedDDP(torch::nn::Module& module, collectives::Communicator& comm,
              int64_t bucket_bytes);

  const std::vector<at::Tensor>& parameters() const override {
    return parameters_;
  }
  void BeginForward() override;
  void FinishGradientSync() override;

 private:
  const std::vector<at::Tensor> parameters_;
};

}  // namespace exercise
