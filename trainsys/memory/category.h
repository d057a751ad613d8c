// What memory is for, and how many bytes there are of each kind. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trainsys {

enum class MemoryCategory : uint8_t {
  kParameter,
  kGradient,        // bucket storages
  kOptimizerState,  // moments, master weights
  kActivation,      // saved for backward, and neither parameter nor input
  kCommunication,   // staging of collectives
  kInput,           // tokens and targets
  kTemporary,       // whatever else a step makes
  kOther,           // buffers and tables of modules, things kept aside
  kPadding,         // of parameters, gradients and state, to their alignment
};

inline constexpr std::array kMemoryCategories = {
    MemoryCategory::kParameter,      MemoryCategory::kGradient,
    MemoryCategory::kOptimizerState, MemoryCategory::kActivation,
    MemoryCategory::kCommunication,  MemoryCategory::kInput,
    MemoryCategory::kTemporary,      MemoryCategory::kOther,
    MemoryCategory::kPadding};

std::string_view Name(MemoryCategory category);

// Bytes of each category.
struct MemorySplit {
  std::array<int64_t, kMemoryCategories.size()> bytes{};

  int64_t& operator[](MemoryCategory category) {
    return bytes[static_cast<size_t>(category)];
  }
  int64_t operator[](MemoryCategory category) const {
    return bytes[static_cast<size_t>(category)];
  }
  int64_t Total() const;
  MemorySplit& operator+=(const MemorySplit& other);
  bool operator==(const MemorySplit&) const = default;
};

}  // namespace trainsys
