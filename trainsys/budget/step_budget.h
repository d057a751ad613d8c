// What each rank of a TransformerLM job holds at the named points of a step,
// to the byte. Pure.
#pragma once

#include <cstdint>

#include "trainsys/budget/model_states.h"
#include "trainsys/budget/recompute_plan.h"
#include "trainsys/budget/transformer_activations.h"
#include "trainsys/memory/step_memory.h"
#include "trainsys/model/transformer_config.h"

namespace trainsys {

struct TransformerJobShape {
  TransformerConfig model;
  int64_t rows = 1;  // B of a rank
  int64_t positions = 256;
  RecomputePlan plan;
  Libtorch libtorch = Libtorch::k1;  // kThisLibtorch, to compare with a ledger
  StatesOptions states;              // kF32 or kF64
};

// What a MemoryLedger counts on rank states.rank: parameters, gradients and
// optimizer state as ModelStatesOf has them; activations as the graph holds
// them; tokens and targets from forward to backward; the model's position
// tables; the loss, the only temporary that lives at these points.
// Errors: InvalidArgument as ModelStatesOf and SavedBytesOf.
StepMemory StepBudgetOf(const TransformerJobShape& shape);

}  // namespace trainsys
