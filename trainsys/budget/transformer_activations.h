// What TransformerLM saves for backward, to the byte, and the recompute plan
// that fits a budget. Pure: no tensors, no threads.
#pragma once

#include <cstdint>
#include <vector>

#include "trainsys/budget/recompute_plan.h"
#include "trainsys/model/transformer_config.h"

namespace trainsys {

// Versions of libtorch that save different tensors for the same operation: in
// k1 (1.13) a mean over one dimension keeps its input, in k2 (2.6) it does not.
// The running one is in this_libtorch.h.
enum class Libtorch { k1, k2 };

// One forward of Loss() on tokens [B, T].
struct ForwardShape {
  int64_t rows = 1;           // B
  int64_t positions = 1;      // T
  int64_t element_bytes = 4;  // 4: f32, 8: f64
  Libtorch libtorch = Libtorch::k1;
};

// Every storage that autograd holds, once and whole, without parameters,
// tokens, targets and TransformerLM::constants(): what
// SavedBytesScope::distinct_bytes() says when it is given those.
struct SavedBytes {
  std::vector<int64_t> blocks;  // of each block, its input included
  int64_t head = 0;             // final norm, output layer and loss

  int64_t total() const;
};

// All functions below:
// Units: bytes; FLOPs, two for a multiply-add.
// Errors: InvalidArgument for a config that Validate() refuses, a shape that
//   the model refuses, or a plan without one entry a block.

// After the forward.
SavedBytes SavedAfterForward(const TransformerConfig& config,
                             const ForwardShape& shape,
                             const RecomputePlan& plan);

// The most that is held at any time of forward and backward.
int64_t PeakSavedBytes(const TransformerConfig& config,
                       const ForwardShape& shape, const RecomputePlan& plan);

// What backward computes a second time, matrix products only.
int64_t RecomputedFlops(const TransformerConfig& config,
                        const ForwardShape& shape, const RecomputePlan& plan);

// The plan of least RecomputedFlops whose PeakSavedBytes is at most
// `budget_bytes`; of several, one of least PeakSavedBytes.
// Errors: InvalidArgument where no plan fits, with the least that one needs.
// Cost: L^3 additions, nothing for L below a few hundred.
RecomputePlan PlanWithin(const TransformerConfig& config,
                         const ForwardShape& shape, int64_t budget_bytes);

}  // namespace trainsys
