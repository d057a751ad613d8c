// The backend that a test is linked with: its sources are the same for all.
#pragma once

#include <chrono>
#include <vector>

#include "collectives/errors.h"
#include "collectives/run_ranks.h"

namespace collectives {

// Its ranks are threads of this process.
RankRunner& RunnerHere();

inline std::vector<Recorder> RunRanksHere(const RunRanksOptions& options,
                                          const RankFunction& fn) {
  return RunnerHere().Run(options, fn);
}

// Whether a group goes on after a timeout, a withdrawn call or a rank that
// left, or ends.
bool GroupsOutliveFailures();

// For functions after which some groups have ended: then every rank fails,
// whatever its function caught.
inline void RunRanksToAFailure(const RunRanksOptions& options,
                               const RankFunction& fn) {
  try {
    RunRanksHere(options, fn);
  } catch (const RankFailed&) {
    if (GroupsOutliveFailures()) throw;
  }
}

// How long others may take to be told of a failure, where nothing delays them.
std::chrono::nanoseconds TellingTime();

}  // namespace collectives
