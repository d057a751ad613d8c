// Sums of squares, for norms that no cut can change.
#pragma once

#include <span>

#include "trainsys/optim/exact_sum.h"

namespace trainsys {

// Adds the squares of `values` to `sum`.
//
// The values are taken in units of 64 bytes from the first one on. A unit's
// squares are added up in double, in one order; a short last unit as if zeros
// followed. Only the units' sums meet in `sum`, which is exact: so pieces that
// start at multiples of 64 bytes from the start of the whole give the bits of
// the whole, in whatever order and on however many ranks, and zeros that pad
// the end change nothing. Whether the memory is aligned does not matter.
//
// T: float, whose squares are exact in double, or double, whose squares beyond
//   2^1024 are infinite.
// Cost: one read an element, near the memory's speed.
// Error: relative to the exact sum at most 5.6e-16, as a unit's sum has at most
//   5 roundings of double on the way.
// Threads: as ExactSum's.
template <typename T>
void AddSquares(std::span<const T> values, ExactSum& sum);

}  // namespace trainsys
