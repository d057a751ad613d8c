// The ways in which ranks can share the optimizer's work: all of them give the
// same bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/optim/optimizer.h"
#include "trainsys/zero/parameter_group.h"
#include "trainsys/zero/shard_plan.h"

namespace trainsys {

enum class Stepping {
  kUnsharded,      // FlatOptimizer
  kOnGradients,    // ZeROOptimizer on p.grad(), whoever averaged it
  kAfterBackward,  // ZeROOptimizer
  kInBackward,     // StepInBackward
};

struct Way {
  GradientSharding sharding = GradientSharding::kNone;
  Partition partition = Partition::kFlat;
  Stepping stepping = Stepping::kUnsharded;
};

// As a test's name has them: "by_tensor", "zero2_by_tensor_in_backward".
std::string Name(Partition partition);
std::string Name(const Way& way);

// Sharding and partition are those of `way`.
BucketedDDPOptions WithWay(BucketedDDPOptions options, const Way& way);

// `ddp`: made with those options.
std::unique_ptr<Optimizer> MakeOptimizer(const Way& way, BucketedDDP& ddp,
                                         collectives::Communicator& comm,
                                         std::vector<ParameterGroup> groups);

// Those that exist with that stepping.
std::vector<Way> WaysOf(Stepping stepping);
// Of every stepping.
std::vector<Way> AllWays();

}  // namespace trainsys
