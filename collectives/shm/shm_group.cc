#include "collectives/shm/shm_group.h"

#include <algorithm>
#include <string>
#include <thread>

#include "collectives/errors.h"
#include "collectives/record/clock.h"
#include "collectives/shm/cores.h"

namespace collectives {
namespace {

// A rank that withdrew is unwinding an exception; its cause is worth this.
constexpr std::chrono::milliseconds kGraceForTheCause{50};

// Where each rank has a core: about 1 us, more than a small collective takes,
// and than a yield to nobody.
constexpr int kSpins = 40;

// With hundreds of ranks on few cores, waking up often to look at the abort
// flag would itself cost a core.
std::chrono::nanoseconds SliceOf(int ranks, std::chrono::nanoseconds timeout) {
  constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(1);
  const std::chrono::nanoseconds slice =
      std::chrono::milliseconds(std::clamp(ranks, 10, 50));
  return std::min(slice, std::max(timeout, kShortest));
}

std::vector<int> MissingRanks(const Round& round) {
  std::vector<int> missing;
  for (int r = 0; r < round.ranks(); ++r) {
    if (!round.has_arrived(r)) missing.push_back(r);
  }
  return missing;
}

std::string PeerText(const FailureCause& cause) {
  return "rank " + std::to_string(cause.rank) + " failed: " + cause.what;
}

}  // namespace

ShmGroup::ShmGroup(int ranks, std::chrono::nanoseconds timeout)
    : ranks_(ranks),
      timeout_(timeout),
      slice_(SliceOf(ranks, timeout)),
      has_cores_(ranks <= NumCores()),
      has_left_(static_cast<size_t>(ranks)) {}

int ShmGroup::HomeOf(int rank) const { return has_cores_ ? rank : ThisCore(); }

void ShmGroup::Leave(int rank) { has_left_[static_cast<size_t>(rank)].Pass(); }

void ShmGroup::ThrowIfAborted(const std::string& channel, uint64_t sequence,
                              const Call& call) const {
  if (const FailureCause* cause = abort_.get()) {
    Throw({Failure::Kind::kPeer, cause->rank, false, PeerText(*cause)}, channel,
          sequence, call);
  }
}

void ShmGroup::AwaitCause() const {
  const auto deadline = std::chrono::steady_clock::now() + kGraceForTheCause;
  while (!abort_.get() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void ShmGroup::Await(Round& round, int rank, int64_t since_ns) const {
  const int spins = has_cores_ ? kSpins : 0;
  for (;;) {
    const Round::Stage stage = round.stage();
    if (stage == Round::Stage::kDone || stage == Round::Stage::kFailed) return;
    if (stage == Round::Stage::kMatched) round.MoveChunks(HomeOf(rank));
    const auto has_moved_on = [&] { return round.stage() != stage; };
    if (!round.word().Await(slice_, has_moved_on, spins)) {
      GiveUpIfHopeless(round, since_ns);
    }
  }
}

void ShmGroup::GiveUpIfHopeless(Round& round, int64_t since_ns) const {
  if (round.stage() != Round::Stage::kOpen) return;
  if (const FailureCause* cause = abort_.get()) {
    return round.Fail(
        {Failure::Kind::kPeer, cause->rank, false, PeerText(*cause)});
  }
  for (int r = 0; r < ranks_; ++r) {
    // In this order, or a rank might arrive and leave in between.
    const bool has_left = has_left_[static_cast<size_t>(r)].is_passed();
    if (has_left && !round.has_arrived(r)) {
      return round.Fail(
          {Failure::Kind::kPeer, r, false,
           "rank " + std::to_string(r) + " has left: its function returned"});
    }
  }
  if (NowNs() - since_ns >= timeout_.count()) {
    const std::vector<int> missing = MissingRanks(round);
    if (missing.empty()) return;  // it is being matched right now
    round.Fail(TimeoutOf(timeout_, missing, ranks_));
  }
}

}  // namespace collectives
