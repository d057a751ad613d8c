// How long all-reduces take alone, for a Link to be fitted to.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/timeline/link.h"

namespace trainsys {

// Averages f32 buffers of these sizes in turn, `turns` times, every other turn
// backwards; small ones some times back to back. A turn's time is that of its
// slowest rank.
// `goes_on`: asked by every rank before each turn, with the same answer.
// Call: on every rank alike. Result: of each size the median for one call, the
// same on every rank; nothing if it did not go on.
std::vector<LinkSample> TimeAllReduces(
    collectives::Communicator& comm, const std::vector<int64_t>& sizes_bytes,
    int turns, const std::function<bool()>& goes_on = [] { return true; });

// Powers of two from 4 KiB to below `largest_bytes`, then that, rounded up to
// whole numbers.
std::vector<int64_t> LinkSizes(int64_t largest_bytes);

}  // namespace trainsys
