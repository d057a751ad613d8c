#include "collectives/rank/rank_threads.h"

#include <algorithm>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "collectives/errors.h"

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

// Follows "rank r failed" to r's own exception, as far as there is one. A rank
// that caught its exception or just left has none: then the first that has.
int FirstFailure(int rank, const std::vector<std::exception_ptr>& errors) {
  const bool is_known = rank >= 0 && rank < static_cast<int>(errors.size());
  if (!is_known || !errors[static_cast<size_t>(rank)]) {
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
  explicit Run(const RankThreads& threads)
      : threads_(threads), errors_(static_cast<size_t>(threads.ranks)) {}

  void Start() {
    std::vector<std::thread> running;
    running.reserve(errors_.size());
    for (int r = 0; r < threads_.ranks; ++r) {
      try {
        running.emplace_back([this, r] { RunRank(r); });
      } catch (const std::system_error& e) {
        Fail(r, std::make_exception_ptr(
                    Error("cannot start a thread for rank " +
                          std::to_string(r) + ": " + e.what())));
        break;
      }
    }
    for (std::thread& thread : running) thread.join();
  }

  void ThrowIfFailed() const {
    const FailureCause* cause = first_.get();
    if (cause == nullptr) return;
    const int rank = FirstFailure(cause->rank, errors_);
    const std::exception_ptr& error = errors_[static_cast<size_t>(rank)];
    throw RankFailed(rank, What(error), error);
  }

 private:
  void RunRank(int rank) {
    try {
      threads_.run(rank);
    } catch (...) {
      Fail(rank, std::current_exception());
    }
    if (threads_.on_end) threads_.on_end(rank);
  }

  void Fail(int rank, const std::exception_ptr& error) {
    errors_[static_cast<size_t>(rank)] = error;
    const FailureCause cause = CauseOf(rank, error);
    first_.Set(cause);
    if (threads_.on_failure) threads_.on_failure(cause);
  }

  const RankThreads& threads_;
  SetOnce<FailureCause> first_;
  // Each written by its rank's thread, read after the threads are joined.
  std::vector<std::exception_ptr> errors_;
};

}  // namespace

FailureCause CauseOf(int rank, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerFailed& e) {
    return {e.rank(), e.what()};
  } catch (...) {
    return {rank, What(error)};
  }
}

void RunThreads(const RankThreads& threads) {
  Run run(threads);
  run.Start();
  run.ThrowIfFailed();
}

}  // namespace collectives
