// What the checks check, as values: the same checks hold ours and a reader's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/ddp/data_parallel.h"
#include "trainsys/optim/optimizer.h"
#include "trainsys/optim/optimizer_options.h"

namespace trainsys {

// Each is called on every rank, and may be a collective.
struct Parts {
  std::function<std::unique_ptr<DataParallel>(torch::nn::Module& module,
                                              collectives::Communicator& comm,
                                              int64_t bucket_bytes)>
      ddp;
  std::function<std::unique_ptr<Optimizer>(std::vector<at::Tensor> parameters,
                                           collectives::Communicator& comm,
                                           const AdamWOptions& options)>
      zero1;
  BlockRunner checkpoint;
};

// BucketedDDP, ZeROOptimizer, Checkpoint.
Parts OurParts();

}  // namespace trainsys
