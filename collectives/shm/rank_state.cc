#include "collectives/shm/rank_state.h"

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "collectives/errors.h"
#include "collectives/record/clock.h"

namespace collectives {
namespace {

// A rank that withdrew is unwinding an exception; its cause is worth this.
constexpr std::chrono::milliseconds kGraceForTheCause{50};

// "12.5 ms", "3 s"
std::string Text(std::chrono::nanoseconds time) {
  const double ms = static_cast<double>(time.count()) / 1e6;
  std::string number = std::to_string(ms < 1000 ? ms : ms / 1000);
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number + (ms < 1000 ? " ms" : " s");
}

std::vector<int> MissingRanks(const Round& round) {
  std::vector<int> missing;
  for (int r = 0; r < round.ranks(); ++r) {
    if (!round.has_arrived(r)) missing.push_back(r);
  }
  return missing;
}

std::string List(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (int r : ranks) text += " " + std::to_string(r);
  return text;
}

bool IsSettled(Round::Stage stage) {
  return stage == Round::Stage::kDone || stage == Round::Stage::kFailed;
}

std::string PeerText(const FailureCause& cause) {
  return "rank " + std::to_string(cause.rank) + " failed: " + cause.what;
}

}  // namespace

void RankState::Leave() {
  // (L) release, pairs with (M): the calls that this rank has made are seen
  // before it is seen to have left.
  group_->has_left[static_cast<size_t>(rank())].store(
      true, std::memory_order_release);
  // A function may own a Work and that this state: destroyed here, or never.
  continuations_.TakeAll();
}

void RankState::ThrowIfAborted() const {
  if (const FailureCause* cause = group_->abort.cause()) {
    throw PeerFailed(cause->rank, PeerText(*cause));
  }
}

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

// With hundreds of ranks on few cores, waking up often to look at the abort
// flag would itself cost a core.
std::chrono::nanoseconds RankState::Slice() const {
  constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(1);
  const std::chrono::nanoseconds slice =
      std::chrono::milliseconds(std::clamp(group_->ranks, 10, 50));
  return std::min(slice, std::max(group_->timeout, kShortest));
}

void RankState::Await(Round& round) const {
  const int64_t began_ns = NowNs();
  for (;;) {
    const Round::Stage stage = round.stage();
    if (IsSettled(stage)) return;
    if (stage == Round::Stage::kMatched) round.MoveChunks();
    const auto has_moved_on = [&] { return round.stage() != stage; };
    if (!round.word().Await(Slice(), has_moved_on)) {
      GiveUpIfHopeless(round, began_ns);
    }
  }
}

bool RankState::Poll(Round& round, int64_t since_ns) const {
  if (round.stage() == Round::Stage::kOpen) GiveUpIfHopeless(round, since_ns);
  return IsSettled(round.stage());
}

void RankState::GiveUpIfHopeless(Round& round, int64_t since_ns) const {
  if (round.stage() != Round::Stage::kOpen) return;
  if (const FailureCause* cause = group_->abort.cause()) {
    return round.Fail(
        {Failure::Kind::kPeer, cause->rank, false, PeerText(*cause)});
  }
  for (int r = 0; r < round.ranks(); ++r) {
    // (M) acquire, pairs with (L): if it has left, has_arrived is final.
    const bool has_left = group_->has_left[static_cast<size_t>(r)].load(
        std::memory_order_acquire);
    if (has_left && !round.has_arrived(r)) {
      return round.Fail(
          {Failure::Kind::kPeer, r, false,
           "rank " + std::to_string(r) + " has left: its function returned"});
    }
  }
  if (NowNs() - since_ns >= group_->timeout.count()) {
    const std::vector<int> missing = MissingRanks(round);
    if (missing.empty()) return;  // it is being matched right now
    round.Fail({Failure::Kind::kTimeout, missing[0], false,
                "timed out after " + Text(group_->timeout) + " waiting for " +
                    List(missing) + " of " + std::to_string(round.ranks())});
  }
}

void RankState::AwaitCause() const {
  const auto deadline = std::chrono::steady_clock::now() + kGraceForTheCause;
  while (!group_->abort.cause() &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void RankState::ThrowIfFailed(const Round& round,
                              const std::string& channel) const {
  if (round.stage() != Round::Stage::kFailed) return;
  const Failure& failure = round.failure();
  const std::string what = failure.what + " (channel '" + channel + "' #" +
                           std::to_string(round.sequence()) + ", " +
                           Describe(round.call(rank())) + ")";
  switch (failure.kind) {
    case Failure::Kind::kMismatch:
      throw MismatchError(what);
    case Failure::Kind::kTimeout:
      throw TimeoutError(what);
    case Failure::Kind::kPeer:
      if (failure.is_withdrawal && failure.rank != rank()) {
        AwaitCause();
        ThrowIfAborted();
      }
      throw PeerFailed(failure.rank, what);
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
