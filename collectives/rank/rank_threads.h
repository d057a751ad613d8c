// Ranks as threads of this process, whatever connects them.
#pragma once

#include <exception>
#include <functional>

#include "collectives/rank/failure.h"
#include "collectives/sync/set_once.h"

namespace collectives {

// Who has failed and how; a rank that failed because of another hands that
// one's name on.
FailureCause CauseOf(int rank, const std::exception_ptr& error);

struct RankThreads {
  int ranks = 1;
  std::function<void(int rank)> run;
  // On the rank's thread: after `run` has thrown, and at the end of each rank.
  std::function<void(const FailureCause& cause)> on_failure;
  std::function<void(int rank)> on_end;
};

// Blocks: until all have ended. Errors: RankFailed with the first failure.
void RunThreads(const RankThreads& threads);

}  // namespace collectives
