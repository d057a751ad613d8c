#include "tests/shm/failing_world.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "collectives/errors.h"
#include "collectives/record/clock.h"
#include "collectives/shm/run_ranks.h"
#include "tests/shm/known_call.h"

namespace collectives {
namespace {

constexpr int kNumCalls = 2;

// A world that does not stall never comes near its deadline; one that does must
// not reach it because a machine is busy.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::chrono::milliseconds kShortTimeout{400};
#else
constexpr std::chrono::milliseconds kShortTimeout{100};
#endif

struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};

// Runs a function at its end, once.
class AtEnd {
 public:
  explicit AtEnd(std::function<void()> fn) : fn_(std::move(fn)) {}
  ~AtEnd() { Run(); }
  void Run() {
    if (fn_) std::exchange(fn_, nullptr)();
  }

 private:
  std::function<void()> fn_;
};

class Run {
 public:
  explicit Run(const FailingWorld& world)
      : world_(world),
        has_posted_each_(world.ranks - 1),
        has_failed_each_(world.ranks - 1) {
    for (int i = 0; i < world.ranks * kNumCalls; ++i) {
      calls_.push_back(std::make_unique<KnownCall>(
          KnownCallKind{world.operation, world.ranks, i % kNumCalls,
                        world.root},
          i / kNumCalls));
      result_.texts.push_back(calls_.back()->Text());
    }
    result_.told.resize(static_cast<size_t>(world.ranks));
  }

  FailingWorldResult Result() {
    try {
      RunRanks({.ranks = world_.ranks, .timeout = world_.Timeout()},
               [this](Communicator& comm) { RunRank(comm); });
    } catch (const RankFailed& e) {
      result_.failed_rank = e.rank();
      result_.failed_what = e.what();
    }
    result_.cause_ns =
        world_.way == Way::kStalls ? DeadlineNs() : cause_ns_.load();
    NoteDamages();
    return std::move(result_);
  }

 private:
  void RunRank(Communicator& comm) {
    std::unique_ptr<Communicator> second;
    if (world_.point == Point::kChannelDestroyed) {
      second = comm.Duplicate("second");
    }
    if (comm.rank() != world_.bad) {
      return RunOther(second ? *second : comm);
    }
    RunBad(comm, second);
    if (world_.way != Way::kStalls) return;
    MakeCallsUntilOneFails(comm, world_.NumMatched());
    is_bad_done_.count_down();
  }

  // The others. Whoever stalls comes late before any of them ends the run.
  void RunOther(Communicator& comm) {
    const bool waits = world_.point == Point::kAfterPostingUnmatched ||
                       world_.point == Point::kChannelDestroyed ||
                       world_.point == Point::kCommunicatorDestroyed;
    if (waits) has_bad_posted_.wait();
    const std::exception_ptr error = MakeCallsUntilOneFails(comm, 0);
    has_failed_each_.count_down();
    if (world_.way == Way::kStalls) is_bad_done_.wait();
    if (error) std::rethrow_exception(error);
  }

  std::exception_ptr MakeCallsUntilOneFails(Communicator& comm, int first) {
    Told& told = result_.told[static_cast<size_t>(comm.rank())];
    try {
      for (int i = first; i < kNumCalls; ++i) {
        told.began_ns = NowNs();
        Make(comm, i);
        ++told.num_done;
      }
    } catch (const std::exception& e) {
      told.told_ns = NowNs();
      told.what = e.what();
      told.error = Told::Error::kOther;
      if (const auto* peer = dynamic_cast<const PeerFailed*>(&e)) {
        told.error = Told::Error::kPeerFailed;
        told.peer = peer->rank();
      } else if (dynamic_cast<const TimeoutError*>(&e)) {
        told.error = Told::Error::kTimeout;
      }
      return std::current_exception();
    }
    return nullptr;
  }

  // Blocking, asynchronous or asking all the time, as the rank's turn is.
  void Make(Communicator& comm, int number) {
    KnownCall& call = CallOf(comm.rank(), number);
    const int turn =
        (comm.rank() + world_.bad + static_cast<int>(world_.operation)) % 3;
    const bool is_counted = number == 0 && BadWaitsForOthers();
    const bool can_start = world_.operation != Operation::kDuplicate;
    if (is_counted && !can_start) has_posted_each_.count_down();
    if (!can_start || (turn == 0 && !is_counted)) return call.Run(comm);
    Work work = call.Start(comm);
    if (is_counted) has_posted_each_.count_down();
    while (turn == 1 && !work.IsDone()) std::this_thread::yield();
    work.Wait();
  }

  bool BadWaitsForOthers() const {
    return world_.point == Point::kWhileOthersWait ||
           world_.point == Point::kAfterPostingMatched;
  }

  void RunBad(Communicator& comm, std::unique_ptr<Communicator>& second) {
    KnownCall& call = CallOf(world_.bad, 0);
    if (BadWaitsForOthers()) has_posted_each_.wait();
    switch (world_.point) {
      case Point::kBeforePosting:
      case Point::kWhileOthersWait:
        return Fail();
      case Point::kAfterPostingUnmatched:
        return PostAndFail(comm, [] {});
      case Point::kChannelDestroyed:
        return PostAndFail(*second, [&second] { second.reset(); });
      case Point::kAfterPostingMatched: {
        const Work work = call.Start(comm);
        return Fail();
      }
      case Point::kInContinuationOfWait: {
        Work work = call.Start(comm);
        work.OnDone([this] { Fail(); });
        return work.Wait();
      }
      case Point::kInContinuationAtCall: {
        Work work = call.Start(comm);
        while (!work.IsDone()) std::this_thread::yield();
        work.OnDone([this] { Fail(); });
        // Who stalls does so in the call that comes late.
        if (world_.way != Way::kStalls) CallOf(world_.bad, 1).Run(comm);
        return;
      }
      case Point::kInDestructor:
        return FailInDestructor(comm);
      case Point::kAfterDroppingWork:
        call.Start(comm);
        return Fail();
      case Point::kCommunicatorDestroyed:
        return LeaveWithWorkInFlight(comm);
    }
  }

  // The others come when the call is withdrawn; at once if it is not.
  void PostAndFail(Communicator& comm, const std::function<void()>& then) {
    AtEnd opens([this] { has_bad_posted_.count_down(); });
    const Work work = CallOf(world_.bad, 0).Start(comm);
    then();
    if (world_.way != Way::kThrows) opens.Run();
    Fail();
  }

  void FailInDestructor(Communicator& comm) {
    try {
      const AtEnd posts([&] {
        CallOf(world_.bad, 0).Run(comm);
        if (world_.way == Way::kStalls) Fail();
        cause_ns_ = NowNs();
      });
      throw Boom();
    } catch (const Boom&) {
      if (world_.way == Way::kThrows) throw;
    }
  }

  // The thread's own objects end after its rank's communicator.
  void LeaveWithWorkInFlight(Communicator& comm) {
    thread_local Work work;
    work = CallOf(world_.bad, 0).Start(comm);
    has_bad_posted_.count_down();
    Fail();
  }

  void Fail() {
    cause_ns_ = NowNs();
    if (world_.way == Way::kThrows) throw Boom();
    if (world_.way == Way::kStalls) has_failed_each_.wait();
  }

  // The first of the others to wait speaks for all.
  int64_t DeadlineNs() const {
    int64_t first = std::numeric_limits<int64_t>::max();
    for (int r = 0; r < world_.ranks; ++r) {
      if (r == world_.bad) continue;
      first = std::min(first, result_.told[static_cast<size_t>(r)].began_ns);
    }
    return first + std::chrono::nanoseconds(world_.Timeout()).count();
  }

  void NoteDamages() {
    for (int i = 0; i < world_.ranks * kNumCalls; ++i) {
      const KnownCall& call = *calls_[static_cast<size_t>(i)];
      const bool is_matched = i % kNumCalls < world_.NumMatched();
      if (is_matched ? call.IsRight() : call.IsUntouched()) continue;
      result_.damages.push_back("rank " + std::to_string(i / kNumCalls) +
                                ", call " + std::to_string(i % kNumCalls) +
                                (is_matched ? ": wrong" : ": not untouched"));
    }
  }

  KnownCall& CallOf(int rank, int number) {
    return *calls_[static_cast<size_t>(rank * kNumCalls + number)];
  }

  const FailingWorld world_;
  std::vector<std::unique_ptr<KnownCall>> calls_;
  FailingWorldResult result_;  // told: each by its rank's thread
  std::atomic<int64_t> cause_ns_{0};
  std::latch has_posted_each_;
  std::latch has_failed_each_;
  std::latch has_bad_posted_{1};
  std::latch is_bad_done_{1};
};

const char* NameOf(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "AllReduce";
    case Operation::kReduceScatter:
      return "ReduceScatter";
    case Operation::kAllGather:
      return "AllGather";
    case Operation::kBroadcast:
      return "Broadcast";
    case Operation::kBarrier:
      return "Barrier";
    case Operation::kDuplicate:
      break;
  }
  return "Duplicate";
}

const char* NameOf(Point point) {
  static constexpr const char* kNames[] = {
      "BeforePosting",         "WhileOthersWait",      "AfterPostingUnmatched",
      "AfterPostingMatched",   "InContinuationOfWait", "InContinuationAtCall",
      "InDestructor",          "AfterDroppingWork",    "ChannelDestroyed",
      "CommunicatorDestroyed",
  };
  return kNames[static_cast<int>(point)];
}

const char* NameOf(Way way) {
  static constexpr const char* kNames[] = {"Throws", "Stalls", "Leaves"};
  return kNames[static_cast<int>(way)];
}

}  // namespace

std::chrono::nanoseconds FailingWorld::Timeout() const {
  if (way == Way::kStalls) return kShortTimeout;
  return std::chrono::minutes(1);
}

int FailingWorld::NumMatched() const {
  switch (point) {
    case Point::kBeforePosting:
    case Point::kWhileOthersWait:
      return 0;
    case Point::kAfterPostingUnmatched:
    case Point::kChannelDestroyed:
      return way == Way::kThrows ? 0 : 1;  // withdrawn, or left to the others
    default:
      return 1;
  }
}

std::string FailingWorld::Name() const {
  std::string name = NameOf(operation);
  if (operation == Operation::kBroadcast) name += std::to_string(root);
  return name + "Of" + std::to_string(ranks) + "_rank" + std::to_string(bad) +
         "_" + NameOf(point) + "_" + NameOf(way);
}

std::ostream& operator<<(std::ostream& out, const FailingWorld& world) {
  return out << world.Name();
}

// Duplicate only blocks. A continuation cannot make its rank's function return
// but by throwing. Nothing unwinds a Work that outlives its function.
bool MakesSense(const FailingWorld& world) {
  if (world.operation == Operation::kDuplicate) {
    return world.point == Point::kBeforePosting ||
           world.point == Point::kWhileOthersWait ||
           world.point == Point::kInDestructor;
  }
  switch (world.point) {
    case Point::kInContinuationOfWait:
    case Point::kInContinuationAtCall:
      return world.way != Way::kLeaves;
    case Point::kCommunicatorDestroyed:
      return world.way == Way::kLeaves;
    default:
      return true;
  }
}

std::chrono::nanoseconds FailingWorldResult::LongestDelay(int bad) const {
  int64_t longest = 0;
  for (size_t r = 0; r < told.size(); ++r) {
    if (static_cast<int>(r) == bad) continue;
    const int64_t since_ns = std::max(cause_ns, told[r].began_ns);
    longest = std::max(longest, told[r].told_ns - since_ns);
  }
  return std::chrono::nanoseconds(longest);
}

FailingWorldResult RunFailing(const FailingWorld& world) {
  return Run(world).Result();
}

}  // namespace collectives
