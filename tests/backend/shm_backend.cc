#include "collectives/shm/run_ranks.h"
#include "tests/backend/backend.h"

namespace collectives {

RankRunner& RunnerHere() {
  static ThreadRunner runner;
  return runner;
}

bool GroupsOutliveFailures() { return true; }

std::chrono::nanoseconds TellingTime() {
  return std::chrono::milliseconds(100);
}

}  // namespace collectives
