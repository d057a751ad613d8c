// What a rank held in the course of a step, from what its ledger booked. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainsys/measure/findings.h"
#include "trainsys/memory/category.h"
#include "trainsys/memory/memory_event.h"

namespace trainsys {

// `before`: what was held before the first of `events`, which are in the order
// of time.
// Result: samples at both ends of the step and after its events, the last one
// of a moment; of more events than `most` samples, in each of as many equal
// parts of the step the largest total and the last one: so the peak is there.
std::vector<MemorySample> MemorySamples(const MemorySplit& before,
                                        std::span<const MemoryEvent> events,
                                        int64_t begin_ns, int64_t end_ns,
                                        size_t most = 400);

}  // namespace trainsys
