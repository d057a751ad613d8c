// Ranks that share nothing, as processes do, in one test.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <future>
#include <mutex>
#include <vector>

#include "collectives/shm/run_ranks.h"

namespace trainsys {

// Runs a program once for each rank, each time with a runner that has only
// that rank, as a launcher would start processes.
class RanksApart {
 public:
  explicit RanksApart(int ranks) : fns_(static_cast<size_t>(ranks)) {}

  // Result: what the program returned for each rank, in rank order.
  template <typename Result>
  std::vector<Result> RunPrograms(
      const std::function<Result(collectives::RankRunner&)>& program) {
    std::vector<std::future<Result>> futures;
    for (size_t r = 0; r < fns_.size(); ++r) {
      futures.push_back(std::async(std::launch::async, [this, r, &program] {
        OneRank runner(*this, r);
        return program(runner);
      }));
    }
    std::vector<Result> results;
    for (auto& future : futures) results.push_back(future.get());
    return results;
  }

 private:
  class OneRank final : public collectives::RankRunner {
   public:
    OneRank(RanksApart& all, size_t rank) : all_(all), rank_(rank) {}
    std::vector<collectives::Recorder> Run(
        const collectives::RunRanksOptions& options,
        const collectives::RankFunction& fn) override {
      if (rank_ >= static_cast<size_t>(options.ranks)) return {};
      return rank_ == 0 ? all_.Lead(options, fn) : all_.Follow(rank_, fn);
    }
    bool HasFirstRank() const override { return rank_ == 0; }

   private:
    RanksApart& all_;
    const size_t rank_;
  };

  // Waits for the other programs' functions and runs each on its rank.
  std::vector<collectives::Recorder> Lead(
      const collectives::RunRanksOptions& options,
      const collectives::RankFunction& fn) {
    const auto end = fns_.begin() + options.ranks;
    std::unique_lock lock(mutex_);
    fns_[0] = &fn;
    changed_.wait(lock,
                  [&] { return std::find(fns_.begin(), end, nullptr) == end; });
    lock.unlock();
    auto recorders =
        collectives::RunRanks(options, [&](collectives::Communicator& comm) {
          (*fns_[static_cast<size_t>(comm.rank())])(comm);
        });
    lock.lock();
    std::fill(fns_.begin(), end, nullptr);
    changed_.notify_all();
    return recorders;
  }

  std::vector<collectives::Recorder> Follow(
      size_t rank, const collectives::RankFunction& fn) {
    std::unique_lock lock(mutex_);
    fns_[rank] = &fn;
    changed_.notify_all();
    changed_.wait(lock, [&] { return fns_[rank] == nullptr; });
    return {};
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  // Each rank's, while it waits for its run. Guarded by mutex_; not changed
  // while they run.
  std::vector<const collectives::RankFunction*> fns_;
};

}  // namespace trainsys
