#include "collectives/record/clock_offset.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "collectives/errors.h"

namespace collectives {
namespace {

// Does not overflow: a valid trip has no negative time.
int64_t Took(const RoundTrip& trip) { return trip.received_ns - trip.sent_ns; }

void Validate(const RoundTrip& trip) {
  if (trip.sent_ns < 0 || trip.answered_ns < 0 ||
      trip.received_ns < trip.sent_ns) {
    throw InvalidArgument(
        "a round trip from " + std::to_string(trip.sent_ns) + " to " +
        std::to_string(trip.received_ns) + " ns, answered at " +
        std::to_string(trip.answered_ns) +
        " ns: expected times from 0 on and an end after the beginning");
  }
}

void Shift(int64_t& time_ns, int64_t offset_ns) {
  if (time_ns == 0) return;
  // Unsigned: times from elsewhere may be anything.
  time_ns = static_cast<int64_t>(static_cast<uint64_t>(time_ns) -
                                 static_cast<uint64_t>(offset_ns));
  if (time_ns == 0) time_ns = 1;
}

}  // namespace

ClockEstimate EstimateClock(std::span<const RoundTrip> trips) {
  if (trips.empty()) {
    throw InvalidArgument("no round trip to estimate a clock from");
  }
  for (const RoundTrip& trip : trips) Validate(trip);
  const RoundTrip& best = *std::ranges::min_element(trips, {}, Took);
  const int64_t middle_ns = std::midpoint(best.sent_ns, best.received_ns);
  return {best.answered_ns - middle_ns, Took(best) / 2 + Took(best) % 2};
}

Recorder InFirstRanksClock(const Recorder& recorder,
                           const ClockEstimate& estimate) {
  RecorderParts parts = recorder.Parts();
  for (Record& record : parts.records) {
    for (int64_t* time_ns :
         {&record.posted_ns, &record.matched_ns, &record.done_ns,
          &record.wait_began_ns, &record.wait_ended_ns}) {
      Shift(*time_ns, estimate.offset_ns);
    }
  }
  for (PhaseRecord& phase : parts.phases) {
    Shift(phase.begin_ns, estimate.offset_ns);
    Shift(phase.end_ns, estimate.offset_ns);
  }
  parts.clock = estimate;
  return Recorder(std::move(parts));
}

}  // namespace collectives
