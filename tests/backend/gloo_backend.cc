#include "collectives/c10d/process_runner.h"
#include "tests/backend/backend.h"

namespace collectives {

RankRunner& RunnerHere() {
  static GlooThreadRunner runner;
  return runner;
}

bool GroupsOutliveFailures() { return false; }

// Who says nothing for a second is the one that is named.
std::chrono::nanoseconds TellingTime() { return std::chrono::seconds(2); }

}  // namespace collectives
