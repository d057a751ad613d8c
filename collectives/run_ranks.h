// How ranks are started: as threads of this process, or with this process as
// one rank of several.
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

using RankFunction = std::function<void(Communicator&)>;

// Errors: InvalidArgument for impossible options or an empty function.
void Validate(const RunRanksOptions& options, const RankFunction& fn);

class RankRunner {
 public:
  virtual ~RankRunner() = default;

  // Runs `fn` once on each of options.ranks ranks with the rank's own
  // communicator: all of them, or the one that this process has. Where ranks
  // are processes, every process makes the same calls; those that have none of
  // the ranks return at once.
  // Result: the records of every rank, in rank order, where rank 0 ran; else
  // nothing.
  // Blocks: until every rank's `fn` has returned.
  // Errors: InvalidArgument for options that this runner cannot serve;
  // RankFailed with the rank and the exception of the failure that came first.
  virtual std::vector<Recorder> Run(const RunRanksOptions& options,
                                    const RankFunction& fn) = 0;

  // Whether rank 0 runs here: who has it reports.
  virtual bool HasFirstRank() const = 0;
};

}  // namespace collectives
