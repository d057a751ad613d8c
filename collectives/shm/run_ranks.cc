#include "collectives/shm/run_ranks.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "collectives/errors.h"
#include "collectives/rank/rank_state.h"
#include "collectives/shm/shm_communicator.h"

namespace collectives {
namespace {

std::string What(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

// A rank that failed because of another hands that one's name on.
FailureCause CauseOf(int rank, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerFailed& e) {
    return {e.rank(), e.what()};
  } catch (...) {
    return {rank, What(error)};
  }
}

// Follows "rank r failed" to r's own exception, as far as there is one. A rank
// that caught its exception or just left has none: then the first that has.
int FirstFailure(int rank, const std::vector<std::exception_ptr>& errors) {
  if (!errors[static_cast<size_t>(rank)]) {
    const auto first = std::find_if(errors.begin(), errors.end(),
                                    [](const auto& e) { return e != nullptr; });
    rank = static_cast<int>(first - errors.begin());
  }
  std::set<int> seen;
  while (seen.insert(rank).second) {
    try {
      std::rethrow_exception(errors[static_cast<size_t>(rank)]);
    } catch (const PeerFailed& e) {
      const auto peer = static_cast<size_t>(e.rank());
      if (peer < errors.size() && errors[peer]) rank = e.rank();
    } catch (...) {
      return rank;
    }
  }
  return rank;
}

class Run {
 public:
  explicit Run(const RunRanksOptions& options)
      : group_(std::make_shared<ShmGroup>(options.ranks, options.timeout)),
        heads_(static_cast<size_t>(options.ranks),
               RoundRef(new Round(options.ranks, ~uint64_t{0}))),
        errors_(static_cast<size_t>(options.ranks)) {
    for (int r = 0; r < options.ranks; ++r) {
      states_.push_back(
          std::make_shared<RankState>(r, options.record_capacity));
    }
  }

  void Start(const RankFunction& fn) {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(group_->ranks()));
    for (int r = 0; r < group_->ranks(); ++r) {
      try {
        threads.emplace_back([this, &fn, r] { RunRank(r, fn); });
      } catch (const std::system_error& e) {
        Fail(r, std::make_exception_ptr(
                    Error("cannot start a thread for rank " +
                          std::to_string(r) + ": " + e.what())));
        break;
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<Recorder> Finish() {
    if (const FailureCause* cause = group_->abort().cause()) {
      const int rank = FirstFailure(cause->rank, errors_);
      const std::exception_ptr& error = errors_[static_cast<size_t>(rank)];
      throw RankFailed(rank, What(error), error);
    }
    std::vector<Recorder> recorders;
    for (auto& state : states_) {
      recorders.push_back(std::move(state->recorder()));
    }
    return recorders;
  }

 private:
  void RunRank(int rank, const RankFunction& fn) {
    const auto& state = states_[static_cast<size_t>(rank)];
    try {
      ShmCommunicator comm(group_, state, "main",
                           std::move(heads_[static_cast<size_t>(rank)]));
      fn(comm);
    } catch (...) {
      Fail(rank, std::current_exception());
    }
    group_->Leave(rank);
    state->ForgetContinuations();
  }

  void Fail(int rank, std::exception_ptr error) {
    errors_[static_cast<size_t>(rank)] = error;
    group_->abort().Raise(CauseOf(rank, error));
  }

  std::shared_ptr<ShmGroup> group_;
  // The round before the first, once for each rank, which takes it.
  std::vector<RoundRef> heads_;
  // Each written by its rank's thread, read after the threads are joined.
  std::vector<std::exception_ptr> errors_;
  std::vector<std::shared_ptr<RankState>> states_;
};

}  // namespace

std::vector<Recorder> RunRanks(const RunRanksOptions& options,
                               const RankFunction& fn) {
  Validate(options, fn);
  Run run(options);
  run.Start(fn);
  return run.Finish();
}

}  // namespace collectives
