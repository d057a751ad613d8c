// Why a group of processes has failed: found once, and the same on all ranks
// that still answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "collectives/c10d/mesh.h"
#include "collectives/c10d/store.h"
#include "collectives/rank/failure.h"

namespace collectives {

// What a rank was doing when it could not go on.
struct Standing {
  std::string channel;
  uint64_t sequence = 0;
  std::string call;  // Describe()
};

// Ranks leave word in the store before they close their connections: what they
// were doing, and, whoever knows it first, why. A rank that has said nothing
// for a second is the one that is named.
// Threads: any thread. Blocks: none of these longer than about 5 seconds,
// whatever the store does.
class Verdict {
 public:
  Verdict(std::shared_ptr<Store> store, int rank, int ranks,
          std::chrono::nanoseconds timeout)
      : store_(std::move(store)),
        rank_(rank),
        ranks_(ranks),
        timeout_(timeout) {}

  // This rank has failed by itself, and says so.
  Failure Announce(const FailureCause& cause);
  // This rank withdrew a call; why, its function may or may not say later.
  Failure Withdraw();
  // A connection of this rank has failed.
  Failure Find(const LinkError& error, const Standing& standing);

  // For the process that serves the store, before it ends after a failure:
  // returns once all ranks have learnt the verdict, or after 3 seconds: a dead
  // one never does.
  static void AwaitReaders(Store& store, int ranks);

 private:
  std::shared_ptr<Store> store_;
  const int rank_;
  const int ranks_;
  const std::chrono::nanoseconds timeout_;
};

}  // namespace collectives
