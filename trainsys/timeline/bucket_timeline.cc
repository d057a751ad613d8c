#include "trainsys/timeline/bucket_timeline.h"

#include <algorithm>
#include <string>

#include "collectives/errors.h"

namespace trainsys {
namespace {

double ReadyUs(std::span<const double> ready_us, size_t parameter) {
  // The comparison also refuses NaN.
  if (parameter < ready_us.size() && ready_us[parameter] >= 0) {
    return ready_us[parameter];
  }
  throw collectives::InvalidArgument(
      "ReadyBuckets: no time for the gradient of parameter " +
      std::to_string(parameter) + ", expected one of 0 us or later");
}

}  // namespace

std::vector<ReadyBucket> ReadyBuckets(std::span<const Bucket> plan,
                                      std::span<const double> ready_us,
                                      int64_t elem_bytes) {
  std::vector<ReadyBucket> buckets;
  for (const Bucket& bucket : plan) {
    ReadyBucket& ready = buckets.emplace_back();
    ready.bytes = bucket.layout.elems * elem_bytes;
    for (size_t p : bucket.parameters) {
      ready.ready_us = std::max(ready.ready_us, ReadyUs(ready_us, p));
    }
  }
  return buckets;
}

BucketTimeline TimelineOf(std::span<const ReadyBucket> buckets,
                          const Link& link, double backward_us) {
  BucketTimeline timeline;
  double last_gradient_us = 0, free_us = 0;  // the channel is free from then on
  for (const ReadyBucket& bucket : buckets) {
    const double begin_us = std::max(bucket.ready_us, free_us);
    free_us = begin_us + link.TimeUs(bucket.bytes);
    timeline.buckets.push_back({bucket.ready_us, begin_us, free_us});
    last_gradient_us = std::max(last_gradient_us, bucket.ready_us);
  }
  timeline.exposed_us = free_us - last_gradient_us;
  timeline.total_us = std::max(backward_us, free_us);
  return timeline;
}

double NoOverlapUs(std::span<const ReadyBucket> buckets, const Link& link,
                   double backward_us) {
  int64_t bytes = 0;
  for (const ReadyBucket& bucket : buckets) bytes += bucket.bytes;
  return backward_us + link.TimeUs(bytes);
}

}  // namespace trainsys
