#include "trainsys/memory/step_memory.h"

namespace trainsys {

std::string_view Name(StepPoint point) {
  switch (point) {
    case StepPoint::kConstructed:
      return "after construction";
    case StepPoint::kAfterForward:
      return "after forward";
    case StepPoint::kAfterBackward:
      return "after backward";
    case StepPoint::kAfterOptimizer:
      return "after optimizer";
  }
  return "?";
}

}  // namespace trainsys
