// When buckets would travel beside a backward, on a link. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainsys/ddp/bucket_plan.h"
#include "trainsys/timeline/link.h"

namespace trainsys {

// Units: microseconds since backward began.
struct ReadyBucket {
  double ready_us = 0;  // its last gradient is there
  int64_t bytes = 0;
};

// The buckets of a plan. `ready_us`: when each parameter's gradient is ready.
// `elem_bytes`: of each element of every bucket.
// Errors: InvalidArgument for a parameter without a time of 0 or later.
std::vector<ReadyBucket> ReadyBuckets(std::span<const Bucket> plan,
                                      std::span<const double> ready_us,
                                      int64_t elem_bytes);

struct BucketTime {
  double ready_us = 0;
  double begin_us = 0;
  double end_us = 0;
};

struct BucketTimeline {
  std::vector<BucketTime> buckets;  // in the order of the plan
  double exposed_us = 0;  // from the last gradient to the last bucket's end
  double total_us = 0;    // until backward and all buckets are done
};

// One bucket after another on one channel: each begins when it is ready and the
// one before it is done. Sending takes nothing from backward.
BucketTimeline TimelineOf(std::span<const ReadyBucket> buckets,
                          const Link& link, double backward_us);

// All in one piece, after backward.
double NoOverlapUs(std::span<const ReadyBucket> buckets, const Link& link,
                   double backward_us);

}  // namespace trainsys
