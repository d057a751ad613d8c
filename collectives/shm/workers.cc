#include "collectives/shm/workers.h"

#include <algorithm>
#include <chrono>

#include "collectives/shm/cores.h"

namespace collectives {

Workers& Workers::Get() {
  // Never destroyed: its loops run until the process ends.
  static Workers* const workers = new Workers;
  return *workers;
}

// oneTBB offers one worker less than there are cores, and none on one.
Workers::Workers()
    : parallelism_(tbb::global_control::max_allowed_parallelism,
                   static_cast<size_t>(NumCores()) + 1),
      arena_(NumCores() + 1, 1) {
  for (int i = 0; i < NumCores(); ++i) {
    arena_.enqueue([] { Get().Loop(); });  // Get waits for the constructor
  }
}

void Workers::Submit(const RoundRef& round) {
  rounds_.Put(round, static_cast<int>(
                         std::min<int64_t>(NumCores(), round->num_chunks())));
}

void Workers::Loop() {
  for (;;) {
    RoundRef round;
    if (rounds_.Take(round, std::chrono::seconds(1))) {
      round->MoveChunks(ThisCore());
    }
  }
}

}  // namespace collectives
