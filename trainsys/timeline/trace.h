// Steps as traces in the format of Kineto (PyTorch's profiler), for Perfetto,
// chrome://tracing and HolisticTraceAnalysis. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/record/recorder.h"

namespace trainsys {

// What stands in a trace of rank r. Processes: "rank r" and "rank r streams".
//   ProfilerStep#k       each step, and its phases below it
//   a kernel on stream 7 a stretch of a phase in which the rank was not inside
//                        a collective's Wait: waiting is no computing
//   a kernel on stream   a collective from when the last rank came until its
//   20, 21, ...          data were there; what overlaps another's has the next
//                        stream. How long it was in flight before, and was
//                        waited for, is in its args and in "in flight"
// Names of collectives begin with ncclDevKernel_, whoever moved the data: it is
// how the tools tell communication from computing.
//
// The tools may round to whole microseconds. So a kernel begins 1 us after its
// launch at the earliest and is at least 1 us long; a stretch of computing
// below 2 us is left out. HTA_DISABLE_NS_ROUNDING=1 in its environment makes
// HolisticTraceAnalysis exact.
//
// `recorders`: of all ranks, in rank order and in rank 0's clock. In the traces
// are the steps that every rank has recorded whole, the newest `most_steps` of
// them; HolisticTraceAnalysis leaves the last one out. Times start with the
// first of them, on all ranks alike.
// `backend`: "threads" or "gloo", for the reader.
// Result: one JSON text for each rank.
// Errors: InvalidArgument for fewer than three such steps.
std::vector<std::string> RankTraces(
    std::span<const collectives::Recorder> recorders,
    const std::string& backend, size_t most_steps = 20);

// "rank3.pt.trace.json". Its folder must have no other JSON files: the tools
// take each for a rank's trace.
std::string TraceFileName(int rank);

}  // namespace trainsys
