// A posted collective, as the rank that posted it sees it: what a backend
// implements.
#pragma once

#include <cstdint>

#include "collectives/sync/rendezvous.h"

namespace collectives {

// Threads: the rank's own, but for stage().
class Pending {
 public:
  using Stage = collectives::Stage;

  virtual ~Pending() = default;

  virtual Stage stage() const = 0;  // any thread
  bool IsSettled() const {
    const Stage now = stage();
    return now == Stage::kDone || now == Stage::kFailed;
  }

  // One look, which never blocks; gives up what will never match.
  // `since_ns`: when the rank first looked.
  virtual void Look(int64_t since_ns) = 0;
  // Blocks until settled, helping where the backend lets it. `since_ns`: when
  // the wait began.
  virtual void Await(int64_t since_ns) = 0;
  // An exception unwinds: if nobody has matched the call yet, nobody shall.
  virtual void Withdraw() = 0;
  virtual void ThrowIfFailed() const = 0;

  // Once done.
  virtual int64_t matched_ns() const = 0;
  virtual int64_t done_ns() const = 0;
};

}  // namespace collectives
