#include "collectives/rank/rank_state.h"

#include <optional>
#include <string>

#include "collectives/errors.h"

namespace collectives {

void RankState::RunContinuations() {
  // Relaxed, all three: the rank's thread reads what it wrote itself.
  if (is_running_continuations_.load(std::memory_order_relaxed)) return;
  for (;;) {
    std::optional<Continuation> next;
    {
      const CallerGuard guard(*this);
      next = continuations_.TryTake();
    }
    if (!next) return;
    if (next->HasFailed()) continue;
    is_running_continuations_.store(true, std::memory_order_relaxed);
    struct Reset {
      std::atomic<bool>& flag;
      ~Reset() { flag.store(false, std::memory_order_relaxed); }
    } reset{is_running_continuations_};
    next->fn();
  }
}

CallerGuard::CallerGuard(RankState& state) : state_(state) {
  // (N) acquire, pairs with (O): this caller sees what the last one wrote.
  if (state.is_busy_.exchange(true, std::memory_order_acquire)) {
    throw InvalidArgument(
        "rank " + std::to_string(state.rank()) +
        ": two threads use its communicators at once; expected one caller at a "
        "time");
  }
}

CallerGuard::~CallerGuard() {
  // (O) release, pairs with (N).
  state_.is_busy_.store(false, std::memory_order_release);
}

}  // namespace collectives
