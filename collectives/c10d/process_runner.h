// This process as one rank of several.
#pragma once

#include <memory>
#include <vector>

#include "collectives/c10d/options.h"
#include "collectives/c10d/store.h"
#include "collectives/c10d/world.h"
#include "collectives/run_ranks.h"

namespace collectives {

// Each Run makes a group of the first options.ranks processes of the world, so
// a failed group does not spoil the next. Threads: one at a time.
class ProcessRunner final : public RankRunner {
 public:
  ProcessRunner(World world, C10dOptions options)
      : world_(std::move(world)), options_(std::move(options)) {}

  // Errors as RankRunner's; InvalidArgument for more ranks than the world has;
  // TimeoutError or Error when the ranks cannot be connected.
  std::vector<Recorder> Run(const RunRanksOptions& options,
                            const RankFunction& fn) override;
  bool HasFirstRank() const override { return world_.rank == 0; }

 private:
  void Connect(std::chrono::nanoseconds timeout);

  const World world_;
  C10dOptions options_;
  std::shared_ptr<Store> store_;  // connected by the first Run
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
