// What one backward sent and when, read off the records, whoever sent it. Pure.
#pragma once

#include <cstdint>

#include "collectives/record/recorder.h"

namespace trainsys {

// Counts of reductions, on any channel. Units: bytes of whole buffers.
struct BackwardTraffic {
  int64_t posted_inside = 0;  // asynchronous ones, while backward ran
  int64_t posted_after = 0;  // asynchronous ones, between it and the step's end
  int64_t blocking = 0;      // blocking ones, while backward ran
  int64_t blocking_after = 0;  // blocking ones, between it and the step's end
  int64_t waited_inside = 0;  // of posted_inside: waited for while backward ran
  int64_t before_last = 0;    // of posted_inside: before the last gradient
  int64_t bytes_inside = 0;   // of posted_inside, all together
  int64_t largest_bytes = 0;  // of posted_inside, the largest one
};

// `last_ready_ns`: when backward's last gradient was ready.
// `end_ns`: when the gradients were waited for.
BackwardTraffic ReadTraffic(const collectives::Recorder& recorder,
                            const collectives::PhaseRecord& backward,
                            int64_t last_ready_ns, int64_t end_ns);

}  // namespace trainsys
