#include "trainsys/checks/backward_traffic.h"

#include <algorithm>

namespace trainsys {

using collectives::Operation;
using collectives::PhaseRecord;
using collectives::Record;

BackwardTraffic ReadTraffic(const collectives::Recorder& recorder,
                            const PhaseRecord& backward, int64_t last_ready_ns,
                            int64_t end_ns) {
  BackwardTraffic traffic;
  for (const Record& record : recorder.Records()) {
    const bool is_reduction = record.operation == Operation::kAllReduce ||
                              record.operation == Operation::kReduceScatter;
    if (!is_reduction || record.posted_ns < backward.begin_ns ||
        record.posted_ns >= end_ns) {
      continue;
    }
    const bool is_inside = record.posted_ns < backward.end_ns;
    if (!record.is_async) {
      ++(is_inside ? traffic.blocking : traffic.blocking_after);
    } else if (!is_inside) {
      ++traffic.posted_after;
    } else {
      ++traffic.posted_inside;
      traffic.bytes_inside += record.bytes;
      traffic.largest_bytes = std::max(traffic.largest_bytes, record.bytes);
      if (record.posted_ns < last_ready_ns) ++traffic.before_last;
      if (record.wait_began_ns != 0 && record.wait_began_ns < backward.end_ns) {
        ++traffic.waited_inside;
      }
    }
  }
  return traffic;
}

}  // namespace trainsys
