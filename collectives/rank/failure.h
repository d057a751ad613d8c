// Why a collective has failed, and how that is said.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "collectives/call.h"

namespace collectives {

struct Failure {
  enum class Kind { kMismatch, kTimeout, kPeer };
  Kind kind = Kind::kPeer;
  int rank = 0;  // kPeer: the one that failed; kTimeout: the first missing
  // Withdrawn while an exception unwinds: its cause follows.
  bool is_withdrawal = false;
  std::string what;
};

// Why a rank failed, for all others to know.
struct FailureCause {
  int rank = 0;  // that failed
  std::string what;
};

// "timed out after 500 ms waiting for ranks 1 3 of 4"
Failure TimeoutOf(std::chrono::nanoseconds timeout,
                  const std::vector<int>& missing, int ranks);

// Throws MismatchError, TimeoutError or PeerFailed: what it says, and in
// brackets which collective it was.
[[noreturn]] void Throw(const Failure& failure, const std::string& channel,
                        uint64_t sequence, const Call& call);

// "rank 2", "ranks 1 3"
std::string RankList(const std::vector<int>& ranks);
// "12.5 ms", "3 s"
std::string TimeText(std::chrono::nanoseconds time);

}  // namespace collectives
