#include "trainsys/measure/agreed_interrupt.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "collectives/buffer.h"
#include "collectives/errors.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {

using collectives::Communicator;

int AgreedSignal(Communicator& comm) {
  int64_t signal = InterruptSignal();
  comm.AllReduce({&signal, collectives::DType::kI64, 1},
                 collectives::ReduceOp::kMax, "interrupts");
  return static_cast<int>(signal);
}

void ThrowIfAnyInterrupted(collectives::RankRunner& runner, int ranks) {
  std::atomic<int> agreed{0};  // all ranks of this process write the same
  runner.Run({.ranks = ranks},
             [&](Communicator& comm) { agreed = AgreedSignal(comm); });
  if (agreed != 0) throw Interrupted(agreed);
}

int MostOf(const std::vector<int>& ranks) {
  if (!ranks.empty()) return *std::max_element(ranks.begin(), ranks.end());
  throw collectives::InvalidArgument(
      "numbers of ranks: none, expected one or more");
}

}  // namespace trainsys
