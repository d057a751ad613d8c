#include "tests/zero/ways.h"

#include <utility>

#include "trainsys/zero/flat_optimizer.h"
#include "trainsys/zero/step_in_backward.h"
#include "trainsys/zero/zero_optimizer.h"

namespace trainsys {
namespace {

std::string Name(GradientSharding sharding) {
  switch (sharding) {
    case GradientSharding::kNone:
      return "all_reduced";
    case GradientSharding::kReduced:
      return "reduce_scattered";
    case GradientSharding::kStored:
      return "zero2";
  }
  return "";
}

}  // namespace

std::string Name(Partition partition) {
  switch (partition) {
    case Partition::kFlat:
      return "flat";
    case Partition::kByTensor:
      return "by_tensor";
    case Partition::kBalanced:
      return "balanced";
  }
  return "";
}

std::string Name(const Way& way) {
  const std::string cut = Name(way.sharding) + "_" + Name(way.partition);
  switch (way.stepping) {
    case Stepping::kUnsharded:
      return "unsharded";
    case Stepping::kOnGradients:
      return cut + "_on_gradients";
    case Stepping::kAfterBackward:
      return cut;
    case Stepping::kInBackward:
      return cut + "_in_backward";
  }
  return "";
}

BucketedDDPOptions WithWay(BucketedDDPOptions options, const Way& way) {
  options.sharding = way.sharding;
  options.partition = way.partition;
  return options;
}

std::unique_ptr<Optimizer> MakeOptimizer(const Way& way, BucketedDDP& ddp,
                                         collectives::Communicator& comm,
                                         std::vector<ParameterGroup> groups) {
  switch (way.stepping) {
    case Stepping::kUnsharded:
      return std::make_unique<FlatOptimizer>(std::move(groups));
    case Stepping::kOnGradients:
      return std::make_unique<ZeROOptimizer>(std::move(groups), comm,
                                             way.partition);
    case Stepping::kAfterBackward:
      return std::make_unique<ZeROOptimizer>(ddp, comm, std::move(groups));
    case Stepping::kInBackward:
      return std::make_unique<StepInBackward>(ddp, comm, std::move(groups));
  }
  return nullptr;
}

std::vector<Way> WaysOf(Stepping stepping) {
  if (stepping == Stepping::kUnsharded) return {{.stepping = stepping}};
  std::vector<Way> ways;
  for (GradientSharding sharding :
       {GradientSharding::kNone, GradientSharding::kReduced,
        GradientSharding::kStored}) {
    const bool has_all = sharding == GradientSharding::kNone;
    if (stepping == Stepping::kOnGradients && !has_all) continue;
    for (Partition partition :
         {Partition::kFlat, Partition::kByTensor, Partition::kBalanced}) {
      ways.push_back({sharding, partition, stepping});
    }
  }
  return ways;
}

std::vector<Way> AllWays() {
  std::vector<Way> all;
  for (Stepping stepping : {Stepping::kUnsharded, Stepping::kOnGradients,
                            Stepping::kAfterBackward, Stepping::kInBackward}) {
    for (const Way& way : WaysOf(stepping)) all.push_back(way);
  }
  return all;
}

}  // namespace trainsys
