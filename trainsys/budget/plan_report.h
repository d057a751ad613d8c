// A memory plan as text and as JSON. Pure.
#pragma once

#include <string>

#include "trainsys/budget/plan.h"
#include "trainsys/zero/shard_plan.h"

namespace trainsys {

// At most 80 columns; the first line is the answer in words. GB are 1e9 bytes.
std::string AsText(const MemoryPlan& plan);

// Units: bytes. docs/json.md has the names.
std::string AsJson(const MemoryPlan& plan);
// `plan`: of the parameters that the request names, by ShardPlanOf.
std::string AsJson(const PlanRequest& request, const ShardPlan& plan);

// Names for flags: "full", "flash". Errors: InvalidArgument for another.
AttentionKernel AttentionNamed(const std::string& name);
std::string NameOf(AttentionKernel attention);

}  // namespace trainsys
