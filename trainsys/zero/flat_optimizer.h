// An optimizer over flat parameters, all of them on this rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trainsys/optim/optimizer.h"
#include "trainsys/zero/shard_optimizer.h"

namespace trainsys {

// What every sharded optimizer is compared with: the same numbers, bit for bit,
// from the same gradients.
// Errors: as ShardOptimizer.
//
// Example:
//   FlatOptimizer optimizer(model->parameters(), AdamWOptions{.lr = 1e-2});
class FlatOptimizer final : public Optimizer {
 public:
  FlatOptimizer(std::vector<at::Tensor> parameters,
                const OptimizerOptions& options);
  explicit FlatOptimizer(std::vector<ParameterGroup> groups);

  void ZeroGrad() override;
  void StepScaled(double gradient_scale) override;
  double GradNorm() override;
  int64_t StateBytes() const override { return local_.StateBytes(); }

  std::vector<ParameterGroup>& groups() { return local_.groups(); }

 private:
  ShardOptimizer local_;
  GradientPart gradient_;
};

}  // namespace trainsys
