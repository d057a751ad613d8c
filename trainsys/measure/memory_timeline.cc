#include "trainsys/measure/memory_timeline.h"

#include <algorithm>

namespace trainsys {
namespace {

void Apply(const MemoryEvent& event, MemorySplit& split) {
  const auto add = [&](MemoryCategory category, int64_t sign) {
    split[category] += sign * (event.bytes - event.padding_bytes);
    split[MemoryCategory::kPadding] += sign * event.padding_bytes;
  };
  if (event.from) add(*event.from, -1);
  if (event.to) add(*event.to, 1);
}

// A change of category may be booked as going and, right after, as coming.
bool IsHalfAChange(const MemoryEvent& event, const MemoryEvent& next) {
  return !event.to && !next.from && event.address == next.address &&
         event.bytes == next.bytes;
}

// After each of the step's moments.
std::vector<MemorySample> EverySample(const MemorySplit& before,
                                      std::span<const MemoryEvent> events,
                                      int64_t begin_ns, int64_t end_ns) {
  MemorySplit split = before;
  std::vector<MemorySample> samples;
  const auto sample = [&](int64_t ns) {
    const double ms = static_cast<double>(ns - begin_ns) / 1e6;
    if (samples.empty() || samples.back().ms < ms) samples.emplace_back();
    samples.back() = {ms, split};
  };
  size_t i = 0;
  for (; i < events.size() && events[i].time_ns <= begin_ns; ++i) {
    Apply(events[i], split);
  }
  sample(begin_ns);
  for (; i < events.size() && events[i].time_ns <= end_ns; ++i) {
    Apply(events[i], split);
    if (i + 1 < events.size() && IsHalfAChange(events[i], events[i + 1])) {
      continue;
    }
    sample(events[i].time_ns);
  }
  sample(end_ns);
  return samples;
}

// The largest and the last one of each part; the first part begins with the
// first sample, which stays.
std::vector<MemorySample> Thinned(const std::vector<MemorySample>& samples,
                                  size_t num_parts) {
  const double step_ms = samples.back().ms;
  const auto part_of = [&](const MemorySample& sample) {
    const double part = sample.ms / step_ms * static_cast<double>(num_parts);
    return std::min(static_cast<size_t>(part), num_parts - 1);
  };
  const auto is_less = [](const MemorySample& a, const MemorySample& b) {
    return a.split.Total() < b.split.Total();
  };
  std::vector<MemorySample> thinned{samples.front()};
  for (auto begin = samples.begin() + 1; begin != samples.end();) {
    const size_t part = part_of(*begin);
    const auto end = std::find_if(
        begin, samples.end(),
        [&](const MemorySample& sample) { return part_of(sample) != part; });
    const auto largest = std::max_element(begin, end, is_less);
    if (largest != end - 1) thinned.push_back(*largest);
    thinned.push_back(*(end - 1));
    begin = end;
  }
  return thinned;
}

}  // namespace

std::vector<MemorySample> MemorySamples(const MemorySplit& before,
                                        std::span<const MemoryEvent> events,
                                        int64_t begin_ns, int64_t end_ns,
                                        size_t most) {
  std::vector<MemorySample> samples =
      EverySample(before, events, begin_ns, end_ns);
  if (samples.size() <= most) return samples;
  return Thinned(samples, std::max<size_t>(1, (most - 1) / 2));
}

}  // namespace trainsys
