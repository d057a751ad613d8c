// One process's side of a group of processes.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/c10d/channel.h"
#include "collectives/c10d/mesh.h"
#include "collectives/c10d/options.h"
#include "collectives/c10d/store.h"
#include "collectives/c10d/verdict.h"
#include "collectives/sync/set_once.h"

namespace collectives {

// Its connections, its channels, and how it ends. Any failure but a mismatch
// ends it, on all ranks: make a new one then.
// Threads: any thread.
class C10dGroup {
 public:
  struct Settings {
    int rank = 0;
    int ranks = 1;
    std::chrono::nanoseconds timeout = std::chrono::minutes(10);
    C10dOptions options;
  };

  // Connects. `store`: the group's own keys. Blocks: until all ranks have come.
  // Errors: TimeoutError naming those that have not; InvalidArgument if the
  // ranks' options differ.
  C10dGroup(std::shared_ptr<Store> store, const Settings& settings);
  ~C10dGroup();

  int rank() const { return settings_.rank; }
  int ranks() const { return settings_.ranks; }
  std::chrono::nanoseconds timeout() const { return settings_.timeout; }
  // How long a rank that is done waits for the functions of the others.
  std::chrono::nanoseconds leaving_timeout() const {
    return std::max<std::chrono::nanoseconds>(timeout(), std::chrono::hours(1));
  }
  const C10dOptions& options() const { return settings_.options; }
  Mesh& mesh() { return *mesh_; }
  Store& store() { return *store_; }

  // Channels live as long as the group: the peers may still use one that this
  // rank has let go. Ids: 0 is the first channel's; rank 0 chooses the others.
  // Errors: Error when 2^29 have been opened.
  std::shared_ptr<Channel> Open(int64_t id);
  int64_t ProposeChannelId() { return next_id_++; }

  // Why the group has ended; null while all is well.
  std::shared_ptr<const Failure> failure() const;
  void ThrowIfFailed() const;

  // End the group. Results: why.
  void Fail(const FailureCause& cause);  // this rank failed by itself
  void Withdraw();                       // it takes a call back
  Failure Explain(const LinkError& error, const Standing& standing);

  // Returns once every rank has left every channel, or the group has failed.
  void Leave();

 private:
  void CheckOptions();
  Failure End(Failure failure);

  const Settings settings_;
  std::shared_ptr<Store> store_;
  Verdict verdict_;
  std::unique_ptr<Mesh> mesh_;  // outlives the channels
  std::atomic<int64_t> next_id_{1};

  mutable std::mutex mutex_;
  std::shared_ptr<const Failure> failure_;
  std::vector<std::shared_ptr<Channel>> channels_;
};

}  // namespace collectives
