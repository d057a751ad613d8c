// Joins a recompute plan to the model.
#pragma once

#include "trainsys/budget/recompute_plan.h"
#include "trainsys/model/segment_runner.h"

namespace trainsys {

// Runs through Checkpoint what the plan says: the whole of a kFull block, the
// attention core of a kSelective one.
//
// Threads: any thread; copies share nothing.
// Errors: the runner throws InvalidArgument for a block that the plan lacks.
//
// Example:
//   TransformerLM model(config, RunnerFor(PlanOfPolicy("full",
//   config.layers)));
SegmentRunner RunnerFor(RecomputePlan plan);

}  // namespace trainsys
