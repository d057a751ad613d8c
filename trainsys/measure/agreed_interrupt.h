// Ctrl-C, for ranks that must stop at one place.
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "collectives/run_ranks.h"

namespace trainsys {

// A collective. Result: the signal that a rank's process was asked to stop
// with, the same on every rank; 0 if none was.
int AgreedSignal(collectives::Communicator& comm);

// The same between two runs, by one of its own. `ranks`: the most of any run,
// so that no process has gone on alone. Call: as every Run of `runner`. Errors:
// Interrupted, where one of the ranks runs; RankFailed.
void ThrowIfAnyInterrupted(collectives::RankRunner& runner, int ranks);

// Errors: InvalidArgument for none.
int MostOf(const std::vector<int>& ranks);

}  // namespace trainsys
