// A world in which one rank fails, as data: who, at what, when and how.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "collectives/types.h"

namespace collectives {

// Every rank makes call 0, then call 1, both of one operation; the bad rank
// fails at one of these points.
enum class Point {
  kBeforePosting,          // call 0
  kWhileOthersWait,        // for it in call 0
  kAfterPostingUnmatched,  // call 0, asynchronously, as the first
  kAfterPostingMatched,    // call 0, asynchronously, as the last
  kInContinuationOfWait,   // of call 0, inside its Wait
  kInContinuationAtCall,   // of call 0, when it makes call 1
  kInDestructor,           // that makes call 0 while an exception unwinds
  kAfterDroppingWork,      // of call 0, in flight
  kChannelDestroyed,       // with call 0 in flight on it
  kCommunicatorDestroyed,  // the same; the Work lives as long as the thread
};

enum class Way {
  kThrows,
  kStalls,  // until all others have failed; then it goes on, too late
  kLeaves,  // its function returns
};

struct FailingWorld {
  int ranks = 3;
  int bad = 0;
  Operation operation = Operation::kAllReduce;
  int root = 0;  // broadcast only
  Point point = Point::kBeforePosting;
  Way way = Way::kThrows;

  std::chrono::nanoseconds Timeout() const;
  // Of calls 0 and 1: how many are matched, and so run to their end.
  int NumMatched() const;
  // "AllReduceOf3_rank1_BeforePosting_Throws"
  std::string Name() const;
};

std::ostream& operator<<(std::ostream& out, const FailingWorld& world);

// Whether the point can be reached with this operation, and the way there.
bool MakesSense(const FailingWorld& world);

// What one of the other ranks saw.
struct Told {
  enum class Error { kNone, kPeerFailed, kTimeout, kOther };
  Error error = Error::kNone;
  int peer = -1;  // kPeerFailed: whom it names
  std::string what;
  int num_done = 0;      // calls before it
  int64_t began_ns = 0;  // the call that failed
  int64_t told_ns = 0;
};

struct FailingWorldResult {
  std::vector<Told> told;            // one a rank
  std::vector<std::string> texts;    // of calls 0 and 1, for each rank
  std::vector<std::string> damages;  // "rank 0, call 1: not untouched"
  int failed_rank = -1;              // whom RunRanks names
  std::string failed_what;
  int64_t cause_ns = 0;  // when it failed; stalls: the others' deadline

  // Of the other rank that was told last.
  std::chrono::nanoseconds LongestDelay(int bad) const;
};

// Blocks: until the world has ended.
FailingWorldResult RunFailing(const FailingWorld& world);

}  // namespace collectives
