// What of recorded steps a trace shows: which steps, and what runs on which
// stream. Not for use elsewhere; trace.h is. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "collectives/record/recorder.h"

namespace trainsys {

inline constexpr int kComputeStream = 7;
// A kernel begins that long after its launch at the earliest: at one time, in
// whole microseconds, readers may see it first.
inline constexpr int64_t kLaunchNs = 1000;

struct TraceSpan {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// What runs on a stream.
struct TraceKernel {
  std::string name;
  TraceSpan span;
  int stream = kComputeStream;
  int64_t launched_ns = 0;
  nlohmann::json args;
  nlohmann::json posted;  // the call that launched it; null for computing
};

inline double Microseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

using TraceSteps = std::map<int64_t, collectives::PhaseRecord>;

// For each rank, the newest `most_steps` steps that all ranks recorded whole.
// Errors: as RankTraces.
std::vector<TraceSteps> StepsOnAllRanks(
    std::span<const collectives::Recorder> recorders, size_t most_steps);

// The steps' phases, in order. One within another is part of it.
std::vector<collectives::PhaseRecord> PhasesOf(
    const collectives::Recorder& recorder, const TraceSteps& steps);

// Computing and collectives, in the order of their launches. On a stream one
// runs after another.
std::vector<TraceKernel> KernelsOf(
    const collectives::Recorder& recorder, const TraceSteps& steps,
    const std::vector<collectives::PhaseRecord>& phases, size_t ranks,
    const std::string& backend);

}  // namespace trainsys
