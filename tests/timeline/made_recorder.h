// Records made by hand, for tests.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/record/recorder.h"

namespace trainsys {

// Bucket number `bucket`, as DDP posts it.
inline collectives::Record BucketRecord(int bucket, int64_t posted_ns) {
  collectives::Record record;
  record.channel = "ddp";
  record.operation = collectives::Operation::kAllReduce;
  record.label = "bucket " + std::to_string(bucket);
  record.is_async = true;
  record.state = collectives::RecordState::kDone;
  record.posted_ns = posted_ns;
  return record;
}

inline constexpr int64_t kMs = 1'000'000;

// Step 4 from 100 to 120 ms, and parts of step 5.
inline collectives::Recorder MadeRecorder() {
  collectives::Recorder recorder(3);
  recorder.AddPhase({"step", 4, 100 * kMs, 120 * kMs});
  recorder.AddPhase({"forward", 4, 100 * kMs, 105 * kMs});
  recorder.AddPhase({"backward", 4, 105 * kMs, 115 * kMs});
  recorder.AddPhase({"forward", 5, 121 * kMs, 125 * kMs});
  recorder.AddPhase({"optimizer", 5, 125 * kMs, 126 * kMs});
  return recorder;
}

// Of step 4: 2560 bytes, for whose data nobody waits.
inline collectives::Record MadeBucket() {
  collectives::Record record = BucketRecord(0, 108 * kMs);
  record.bytes = 2560;
  record.matched_ns = 110 * kMs;
  record.done_ns = 113 * kMs;
  record.wait_began_ns = 115 * kMs;
  record.wait_ended_ns = 115 * kMs;
  return record;
}

}  // namespace trainsys
