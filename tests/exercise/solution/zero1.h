// Part 2 of docs/tutorial.md, solved.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/optim/optimizer.h"
#include "trainsys/optim/optimizer_options.h"

namespace exercise {

class ZeRO1 final : public trainsys::Optimizer {
 public:
  ZeRO1(std::vector<at::Tensor> parameters, collectives::Communicator& comm,
        const trainsys::AdamWOptions& options);

  void ZeroGrad() override;
  void StepScaled(double gradient_scale) override;
  double GradNorm() override;
  int64_t StateBytes() const override;

 private:
  at::Tensor FlatGradients() const;

  const std::vector<at::Tensor> parameters_;
  const std::unique_ptr<collectives::Communicator> comm_;
  const trainsys::AdamWOptions options_;
  at::Tensor flat_;              // all parameters, which are parts of it
  std::vector<int64_t> counts_;  // elements of each rank's shard
  int64_t begin_ = 0;            // of this rank's
  at::Tensor m_, v_;             // moments of this rank's
  int64_t step_ = 0;
};

}  // namespace exercise
