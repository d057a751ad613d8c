// The parameters that a shard plan is for, and those that are trained now.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "trainsys/ddp/bucket_shards.h"
#include "trainsys/ddp/module_parameters.h"
#include "trainsys/zero/shard_plan.h"

namespace trainsys {

// The plan stays as it is while parameters are frozen and thawed: an optimizer
// keeps state by it.
class PlannedParameters {
 public:
  PlannedParameters(std::vector<at::Tensor> parameters, int ranks,
                    Partition partition);

  const std::vector<at::Tensor>& all() const { return all_; }
  const ShardPlan& plan() const { return plan_; }

  // Errors: InvalidArgument for the first of `trained` that is in no shard, as
  // it was frozen, or of another size in bytes, when the plan was made.
  void RefuseUnplanned(const NamedTensors& trained) const;

  // From now on these are trained.
  void SetTrained(const std::vector<at::Tensor>& trained);

  // Which of all() a trained one is, and the other way round.
  std::optional<size_t> PlannedOf(size_t trained) const {
    return planned_of_[trained];
  }
  std::optional<size_t> TrainedOf(size_t planned) const {
    return trained_of_[planned];
  }
  // Where the trained ones lie. None is unplanned.
  ShardedParameters Sharded(int rank) const;

 private:
  std::optional<size_t> Find(const at::Tensor& parameter) const;

  std::vector<at::Tensor> all_;
  std::map<const at::TensorImpl*, size_t> index_;  // in all_
  ShardPlan plan_;
  std::vector<std::optional<size_t>> planned_of_;  // of each trained one
  std::vector<std::optional<size_t>> trained_of_;  // of each planned one
};

}  // namespace trainsys
