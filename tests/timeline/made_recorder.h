// Records made by hand, for tests.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/record/recorder.h"

namespace trainsys {

// A phase at times of the test's choice. A Recorder itself takes them from
// the clock, which no test can know.
inline void AddPhase(collectives::Recorder& recorder, const std::string& name,
                     int64_t step, int64_t begin_ns, int64_t end_ns) {
  recorder.BeginPhase(name, step);
  auto& phase = const_cast<collectives::PhaseRecord&>(recorder.Phases().back());
  phase.begin_ns = begin_ns;
  phase.end_ns = end_ns;
}

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

}  // namespace trainsys
