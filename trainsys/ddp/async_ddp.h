// Data parallelism that overlaps, without buckets: to read and to compare with.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/ddp/data_parallel.h"
#include "trainsys/ddp/module_parameters.h"
#include "trainsys/ddp/parameter_hooks.h"

namespace trainsys {

// From each parameter's gradient hook an asynchronous all-reduce, in the order
// in which backward reaches them; it must be the same on all ranks.
//
// Lifetime: holds the parameters and a channel of `comm`; `comm` outlives it.
class AsyncDDP final : public DataParallel {
 public:
  // As SimpleDDP's.
  AsyncDDP(const torch::nn::Module& module, collectives::Communicator& comm);

  const std::vector<at::Tensor>& parameters() const override {
    return trained_.tensors;
  }
  void BeginForward() override;
  // Errors: also Error, on this rank, for a parameter without a gradient.
  void FinishGradientSync() override;

 private:
  // The gradient is kept: p.grad() may be dropped meanwhile.
  struct InFlight {
    size_t parameter = 0;
    at::Tensor gradient;
    collectives::Work work;
  };

  void OnGradientReady(size_t parameter);

  std::unique_ptr<collectives::Communicator> comm_;
  NamedTensors trained_;
  bool has_forward_ = false;         // one that began outside NoSync
  std::vector<InFlight> in_flight_;  // in the order posted
  std::vector<bool> is_ready_;       // of each parameter
  ParameterHooks hooks_;             // last: gone before what they use
};

}  // namespace trainsys
