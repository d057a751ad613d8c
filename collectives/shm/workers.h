// The threads that complete posted collectives while every rank computes.
#pragma once

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include "collectives/shm/shm_channel.h"
#include "collectives/sync/hand_over.h"

namespace collectives {

// One pool a process: as many long-lived loops in a oneTBB arena as there are
// cores, started at first use and never stopped. They capture nothing, get
// matched rounds only, and never wait for a peer.
class Workers {
 public:
  static Workers& Get();

  // Queues a matched round for some worker to move its chunks. Any thread.
  void Submit(const RoundRef& round);

 private:
  Workers();
  [[noreturn]] void Loop();

  tbb::global_control parallelism_;
  tbb::task_arena arena_;
  HandOver<RoundRef> rounds_;
};

}  // namespace collectives
