#include "trainsys/timeline/overlap.h"

#include <algorithm>

namespace trainsys {

using collectives::Operation;
using collectives::PhaseRecord;
using collectives::Record;
using collectives::Recorder;

std::optional<PhaseRecord> FindPhase(const Recorder& recorder,
                                     const std::string& name, int64_t step) {
  for (const PhaseRecord& phase : recorder.Phases()) {
    if (phase.name == name && phase.step == step) return phase;
  }
  return std::nullopt;
}

bool IsBucket(const Record& record) {
  return record.channel == "ddp" && record.is_async &&
         (record.operation == Operation::kAllReduce ||
          record.operation == Operation::kReduceScatter);
}

std::vector<Record> BucketRecords(const Recorder& recorder, int64_t begin_ns,
                                  int64_t end_ns) {
  std::vector<Record> buckets;
  for (const Record& record : recorder.Records()) {
    if (IsBucket(record) && record.posted_ns >= begin_ns &&
        record.posted_ns < end_ns) {
      buckets.push_back(record);
    }
  }
  return buckets;
}

std::string OverlapViolation(const Recorder& recorder,
                             const PhaseRecord& backward,
                             const std::vector<Bucket>& buckets,
                             const std::vector<int64_t>& ready_ns) {
  const std::vector<Record> posted =
      BucketRecords(recorder, backward.begin_ns, backward.end_ns);
  if (posted.size() != buckets.size()) {
    return std::to_string(posted.size()) + " of " +
           std::to_string(buckets.size()) +
           " buckets were posted inside backward";
  }
  const int64_t last_ready =
      *std::max_element(ready_ns.begin(), ready_ns.end());
  if (posted[0].posted_ns >= last_ready) {
    return "the first bucket was posted after the last gradient";
  }
  for (size_t b = 0; b < buckets.size(); ++b) {
    const std::string name = "bucket " + std::to_string(b);
    if (posted[b].label != name) return name + " was posted out of order";
    if (posted[b].wait_began_ns != 0 &&
        posted[b].wait_began_ns < backward.end_ns) {
      return name + " was waited for inside backward";
    }
    if (b + 1 == buckets.size()) continue;
    for (size_t p : buckets[b + 1].parameters) {
      if (ready_ns[p] <= posted[b].posted_ns) {
        return name + " was posted after a gradient of the next bucket";
      }
    }
  }
  return "";
}

}  // namespace trainsys
