// Yours to write: docs/tutorial.md, part 2.
//
// AdamW whose state is cut into one shard a rank: ZeRO-1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/optim/optimizer.h"
#include "trainsys/optim/optimizer_options.h"

namespace exercise {

class ZeRO1 final : public trainsys::Optimizer {
 public:
  // Called on all ranks. The parameters are the same on all, of f32.
  ZeRO1(std::vector<at::Tensor> parameters, collectives::Communicator& comm,
        const trainsys::AdamWOptions& options);

  void ZeroGrad() override;
  void StepScaled(double gradient_scale) override;
  double GradNorm() override;
  int64_t StateBytes() const override;

 private:
  const std::vector<at::Tensor> parameters_;
};

}  // namespace exercise
