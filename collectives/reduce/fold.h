// Reductions on plain memory.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/types.h"

namespace collectives {

// Where a fold reads and writes, in elements from the start of each memory.
struct FoldRange {
  int64_t source_begin = 0;
  int64_t destination_begin = 0;
  int64_t elems = 0;
};

// For each element i of the range: folds sources[0][i], sources[1][i], ... in
// that order and stores the result at element i of every destination.
// Average is that fold and one division by the number of sources; 16-bit
// floats are folded in f32 and rounded once, to nearest even.
//
// A NaN stays NaN; of several in one fold, which one's bits stay is open.
//
// A destination may be a source, at the same element. The result of an
// element does not depend on the range or on alignment.
// Cost: each source read once, each destination written once, 256
// bytes of each at a time, in registers in between.
// Threads: any thread; calls on disjoint ranges may run at once.
void Fold(DType dtype, ReduceOp op, std::span<const void* const> sources,
          std::span<void* const> destinations, const FoldRange& range);

}  // namespace collectives
