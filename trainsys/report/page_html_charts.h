// The page's three charts, as inline SVG. Pure. Each point says its figure to
// a pointer that rests on it, and its place in report.json in data-json.
#pragma once

#include <string>

#include "trainsys/measure/findings.h"

namespace trainsys {

// One step's memory by category over time, a panel for each timeline.
std::string MemoryChart(const MemoryFinding& memory);

// Time a step over the size of buckets, of the sweep that is shown.
std::string BucketChart(const BucketFinding& buckets, int cores);

// Extra time over the activations' peak, a point for each policy.
std::string RecomputeChart(const RecomputeFinding& recompute);

}  // namespace trainsys
