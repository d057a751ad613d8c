// Our AdamW over a range of flat parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trainsys/optim/adamw.h"
#include "trainsys/optim/optimizer.h"
#include "trainsys/zero/flat_parameters.h"
#include "trainsys/zero/shard_plan.h"

namespace trainsys {

// Updates the parameters inside one shard of the flat buffer; with the default
// shard all of them, which makes it a whole optimizer.
// Shape: state is two buffers of the shard's length.
// Errors: InvalidArgument as FlatParameters and AdamWOptions have it, or from
// Step for a gradient on another dtype.
class FlatAdamW final : public Optimizer {
 public:
  FlatAdamW(std::vector<at::Tensor> parameters, const AdamWOptions& options);
  // Of `num_shards` shards, owns number `owned`.
  FlatAdamW(std::vector<at::Tensor> parameters, const AdamWOptions& options,
            int num_shards, int owned);

  void ZeroGrad() override;
  // Parameters without a gradient stay as they are, and their step count too.
  void Step() override;
  int64_t StateBytes() const override;

  const FlatParameters& parameters() const { return parameters_; }
  const std::vector<Shard>& shards() const { return shards_; }
  const Shard& shard() const { return shards_[static_cast<size_t>(owned_)]; }

 private:
  void CheckGradients() const;
  template <typename T>
  void Update(size_t piece, const at::Tensor& grad);
  void UpdateOnDevice(size_t piece, const at::Tensor& grad);

  AdamWOptions options_;
  FlatParameters parameters_;
  std::vector<Shard> shards_;
  int owned_;
  std::vector<FlatParameters::Piece> pieces_;
  std::vector<int64_t> num_steps_;  // of each piece's parameter
  at::Tensor m_;                    // [shard], moments as in adamw.h
  at::Tensor v_;
};

}  // namespace trainsys
