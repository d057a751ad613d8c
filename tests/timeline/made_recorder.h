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

}  // namespace trainsys
