#include "collectives/rank/rank_state.h"

#include <optional>
#include <string>

#include "collectives/errors.h"
#include "collectives/recomputing.h"

namespace collectives {

bool RankState::RunContinuations() {
  if (continuations_.IsEmpty() || !runner_.TryTake()) return false;
  struct Release {
    Claim& claim;
    ~Release() { claim.Release(); }
  } release{runner_};
  for (bool has_run = false;;) {
    std::optional<Continuation> next;
    {
      const CallerGuard guard(*this);
      next = continuations_.TryTake();
    }
    if (!next) return has_run;
    if (next->HasFailed()) continue;
    // At which call or wait it runs is not the same on all ranks; so neither is
    // whether that is part of a second run.
    const NotRecomputingScope not_of_a_segment;
    next->fn();
    has_run = true;
  }
}

void CallerGuard::Refuse(int rank) {
  throw InvalidArgument(
      "rank " + std::to_string(rank) +
      ": two threads use its communicators at once; expected one caller at a "
      "time");
}

}  // namespace collectives
