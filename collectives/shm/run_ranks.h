// Starts ranks as threads of this process.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/record/recorder.h"

namespace collectives {

inline constexpr int kMaxRanks = 1024;

struct RunRanksOptions {
  int ranks = 1;  // 1 to kMaxRanks
  // How long a collective may wait for its peers.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  size_t record_capacity = Recorder::kDefaultCapacity;  // for each rank
};

// Runs `fn` once on each of options.ranks new threads with the rank's own
// communicator, and joins them.
// Result: the records of every rank, in rank order.
// Blocks: until every rank's `fn` has returned. When one throws, every other
// rank's pending and later calls throw PeerFailed, within 100 ms up to 64
// ranks. Errors: InvalidArgument for impossible options; RankFailed with the
// rank and the exception of the failure that came first.
//
// Example:
//   RunRanks({.ranks = 4}, [](Communicator& comm) {
//     std::vector<float> x(1000, comm.rank());
//     comm.AllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, "x");
//   });
std::vector<Recorder> RunRanks(const RunRanksOptions& options,
                               const std::function<void(Communicator&)>& fn);

}  // namespace collectives
