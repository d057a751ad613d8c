#include "collectives/shm/workers.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace collectives {
namespace {

int NumWorkers() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace

Workers& Workers::Get() {
  // Never destroyed: its loops run until the process ends.
  static Workers* const workers = new Workers;
  return *workers;
}

// oneTBB offers one worker less than there are cores, and none on one.
Workers::Workers()
    : parallelism_(tbb::global_control::max_allowed_parallelism,
                   static_cast<size_t>(NumWorkers()) + 1),
      arena_(NumWorkers() + 1, 1) {
  for (int i = 0; i < NumWorkers(); ++i) {
    arena_.enqueue([] { Get().Loop(); });  // Get waits for the constructor
  }
}

void Workers::Submit(const RoundRef& round) {
  const int64_t helpers = std::min<int64_t>(NumWorkers(), round->num_chunks());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int64_t i = 0; i < helpers; ++i) queue_.push_back(round);
  }
  word_.NotifyAll();
}

bool Workers::TryTake(RoundRef& round) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (queue_.empty()) return false;
  round = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void Workers::Loop() {
  for (;;) {
    RoundRef round;
    if (word_.Await(std::chrono::seconds(1), [&] { return TryTake(round); })) {
      round->MoveChunks();
    }
  }
}

}  // namespace collectives
