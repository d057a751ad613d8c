// Data parallelism in its simplest form, to read and to compare with.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/ddp/data_parallel.h"
#include "trainsys/ddp/module_parameters.h"

namespace trainsys {

// After backward, one blocking all-reduce for each parameter, in reverse
// order of registration: nothing overlaps.
//
// Lifetime: holds the parameters and a channel of `comm`; `comm` outlives it.
class SimpleDDP final : public DataParallel {
 public:
  // A collective. The ranks' modules must be the same, values included;
  // BroadcastFromRank0 makes them so.
  // Errors: InvalidArgument on every rank, naming what differs where.
  SimpleDDP(const torch::nn::Module& module, collectives::Communicator& comm);

  const std::vector<at::Tensor>& parameters() const override {
    return trained_.tensors;
  }
  void BeginForward() override;
  // Errors: also Error, on this rank, for a parameter without a gradient.
  void FinishGradientSync() override;

 private:
  std::unique_ptr<collectives::Communicator> comm_;
  NamedTensors trained_;
  bool has_forward_ = false;  // one that began outside NoSync
};

}  // namespace trainsys
