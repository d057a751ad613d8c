// One rank of a group of processes, from its start to its end.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/c10d/group.h"
#include "collectives/c10d/store.h"
#include "collectives/record/recorder.h"
#include "collectives/run_ranks.h"

namespace collectives {

// Connects, runs `fn`, brings all ranks' records to rank 0, in its clock.
// `store`: keys of this group alone.
// Result: on rank 0 the records of every rank, in rank order; else nothing.
// Blocks: until every rank's `fn` has returned.
// Errors: what `fn` throws, after the others were told; TimeoutError,
// PeerFailed.
std::vector<Recorder> RunAsRank(const std::shared_ptr<Store>& store,
                                const C10dGroup::Settings& settings,
                                size_t record_capacity, const RankFunction& fn);

}  // namespace collectives
