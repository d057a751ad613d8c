// Starts ranks as threads of this process.
#pragma once

#include <vector>

#include "collectives/run_ranks.h"

namespace collectives {

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
                               const RankFunction& fn);

class ThreadRunner final : public RankRunner {
 public:
  std::vector<Recorder> Run(const RunRanksOptions& options,
                            const RankFunction& fn) override {
    return RunRanks(options, fn);
  }
  bool HasFirstRank() const override { return true; }
};

}  // namespace collectives
