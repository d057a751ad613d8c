// The named points of training at which memory is compared: what a ledger has
// counted there and what the budget says. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trainsys/memory/category.h"

namespace trainsys {

enum class StepPoint : uint8_t {
  kConstructed,     // model, buckets and optimizer are there
  kAfterForward,    // the loss is computed, the graph holds its tensors
  kAfterBackward,   // every gradient is accumulated
  kAfterOptimizer,  // the parameters are updated
};

inline constexpr std::array kStepPoints = {
    StepPoint::kConstructed, StepPoint::kAfterForward,
    StepPoint::kAfterBackward, StepPoint::kAfterOptimizer};

// "after forward"; also the point's name in a ledger's marks.
std::string_view Name(StepPoint point);

// What there is at each point.
struct StepMemory {
  std::array<MemorySplit, kStepPoints.size()> at;

  MemorySplit& operator[](StepPoint point) {
    return at[static_cast<size_t>(point)];
  }
  const MemorySplit& operator[](StepPoint point) const {
    return at[static_cast<size_t>(point)];
  }
  bool operator==(const StepMemory&) const = default;
};

}  // namespace trainsys
