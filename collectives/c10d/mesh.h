// Bytes between the ranks of a group, each to each.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "collectives/record/clock.h"

namespace collectives {

// On NowNs()'s clock; the longest timeouts do not overflow it.
inline int64_t DeadlineAfter(std::chrono::nanoseconds timeout) {
  constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365);
  return NowNs() + std::min(timeout, kLongest).count();
}

// What one rank sends to or receives from one peer. Nothing moves for 0 bytes.
struct Piece {
  int peer = 0;
  void* data = nullptr;  // only read when sent
  int64_t bytes = 0;
};

// A connection that no longer works. The mesh is of no use afterwards.
class LinkError : public std::runtime_error {
 public:
  enum class Kind { kLost, kTimeout, kClosed };
  static constexpr int kSomePeer = -1;  // a library does not say which

  LinkError(Kind kind, int peer, const std::string& what)
      : std::runtime_error(what), kind_(kind), peer_(peer) {}

  Kind kind() const { return kind_; }
  // Whose connection; for kClosed, by ourselves, of no meaning.
  int peer() const { return peer_; }

 private:
  Kind kind_;
  int peer_;
};

// Sends and receives under way. Destroying it, though not all are complete,
// leaves their memory alone from then on.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Blocks until all have completed. Errors: LinkError.
  virtual void Wait(int64_t deadline_ns) = 0;
};

// Messages from one rank to another with one tag arrive in the order they were
// sent in, and only when the other asks for them; sizes must agree.
// Threads: any thread; one at a time for each tag.
class Mesh {
 public:
  enum class Phase {
    kMatching,  // ended by Close
    kData,      // while the mesh is held: runs to its end, or its deadline
  };

  virtual ~Mesh() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Starts them all. Lifetime: the memory outlives the Transfer.
  // Errors: LinkError.
  virtual std::unique_ptr<Transfer> Start(const std::vector<Piece>& sends,
                                          const std::vector<Piece>& receives,
                                          int tag, Phase phase) = 0;

  // Keeps the connections for the data of a call that is about to match, as
  // long as the result lives, though the mesh is closed meanwhile.
  // Errors: LinkError kClosed.
  virtual std::shared_ptr<void> Hold() = 0;

  // Ends what is in its matching phase with LinkError kClosed, starts nothing
  // new, and closes the connections once nobody holds them: peers that
  // wait for this rank get LinkError kLost.
  virtual void Close() = 0;
};

}  // namespace collectives
