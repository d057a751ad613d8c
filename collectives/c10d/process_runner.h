// This process as one rank of several.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "collectives/c10d/options.h"
#include "collectives/c10d/store.h"
#include "collectives/c10d/world.h"
#include "collectives/run_ranks.h"

namespace collectives {

// Each Run makes a group of the first options.ranks processes of the world, so
// a failed group does not spoil the next. One for each process: two would meet
// under the same keys. Threads: one at a time.
class ProcessRunner final : public RankRunner {
 public:
  // `store`: instead of the one at the world's address; new for each start of
  // the program.
  ProcessRunner(World world, C10dOptions options,
                std::shared_ptr<Store> store = nullptr)
      : world_(std::move(world)),
        options_(std::move(options)),
        store_(std::move(store)) {}

  // Errors as RankRunner's; InvalidArgument for more ranks than the world has;
  // TimeoutError or Error when the ranks cannot be connected.
  std::vector<Recorder> Run(const RunRanksOptions& options,
                            const RankFunction& fn) override;
  bool HasFirstRank() const override { return world_.rank == 0; }

 private:
  void Connect(std::chrono::nanoseconds timeout);
  // Throws what is being handled as RankFailed.
  [[noreturn]] void Fail(Store& store, int ranks) const;

  const World world_;
  C10dOptions options_;
  std::shared_ptr<Store> store_;  // connected by the first Run
  bool serves_store_ = false;
  int runs_ = 0;
};

// Ranks as threads of this process that talk over Gloo all the same, for tests
// and comparisons.
class GlooThreadRunner final : public RankRunner {
 public:
  explicit GlooThreadRunner(C10dOptions options = {})
      : options_(std::move(options)) {}

  std::vector<Recorder> Run(const RunRanksOptions& options,
                            const RankFunction& fn) override;
  bool HasFirstRank() const override { return true; }

 private:
  C10dOptions options_;
};

}  // namespace collectives
