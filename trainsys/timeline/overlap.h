// Did communication run under backward? Read off the records; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/record/recorder.h"
#include "trainsys/ddp/bucket_plan.h"

namespace trainsys {

// The phase of that name in that step, if it was recorded.
std::optional<collectives::PhaseRecord> FindPhase(
    const collectives::Recorder& recorder, const std::string& name,
    int64_t step);

// An asynchronous reduction on the channel "ddp": a bucket of gradients.
bool IsBucket(const collectives::Record& record);

// The buckets that were posted in [begin_ns, end_ns), in that order.
std::vector<collectives::Record> BucketRecords(
    const collectives::Recorder& recorder, int64_t begin_ns, int64_t end_ns);

// What a backward with overlap looks like on one rank:
//   every bucket was posted once, in order, while backward ran; bucket k before
//   the first gradient of bucket k+1 was ready; the first bucket before the
//   last gradient; and nothing was waited for before backward returned.
// `ready_ns`: when each parameter's gradient was ready.
// Result: empty if so, else the first claim that does not hold.
std::string OverlapViolation(const collectives::Recorder& recorder,
                             const collectives::PhaseRecord& backward,
                             const std::vector<Bucket>& buckets,
                             const std::vector<int64_t>& ready_ns);

}  // namespace trainsys
