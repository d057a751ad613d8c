// Clocks of different machines: how far apart they are, and records of one in
// the clock of another. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/record/clock.h"
#include "collectives/record/recorder.h"

namespace collectives {

// Rank 0 asks another rank for its time.
struct RoundTrip {
  int64_t sent_ns = 0;      // rank 0's clock
  int64_t answered_ns = 0;  // the other's clock
  int64_t received_ns = 0;  // rank 0's clock
};

// The other rank's clock minus rank 0's, from the trip that took the shortest
// time T: as if the answer fell into the middle of it. However unequal the two
// ways were, the error is at most T/2, rounded up. How the clocks drift apart
// after that trip is not in it.
// Errors: InvalidArgument without a trip, or if one has a negative time or
// ended before it began.
// Source: Cristian, Probabilistic clock synchronization, 1989; RFC 5905,
// section 8.
ClockEstimate EstimateClock(std::span<const RoundTrip> trips);

// The recorder of a rank whose clock differs by `estimate`, with all times in
// rank 0's clock; its clock() says so. A time of 0, "not yet", stays 0, and no
// other becomes 0.
Recorder InFirstRanksClock(const Recorder& recorder,
                           const ClockEstimate& estimate);

}  // namespace collectives
