#include "trainsys/memory/category.h"

#include <numeric>

namespace trainsys {

std::string_view Name(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kParameter:
      return "parameters";
    case MemoryCategory::kGradient:
      return "gradients";
    case MemoryCategory::kOptimizerState:
      return "optimizer state";
    case MemoryCategory::kActivation:
      return "activations";
    case MemoryCategory::kCommunication:
      return "communication";
    case MemoryCategory::kInput:
      return "inputs";
    case MemoryCategory::kTemporary:
      return "temporaries";
    case MemoryCategory::kOther:
      return "other";
    case MemoryCategory::kPadding:
      return "padding";
  }
  return "?";
}

int64_t MemorySplit::Total() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

MemorySplit& MemorySplit::operator+=(const MemorySplit& other) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] += other.bytes[i];
  return *this;
}

}  // namespace trainsys
