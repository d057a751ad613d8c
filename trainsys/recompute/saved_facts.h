// What is remembered of a dropped tensor, to hold the second run against.
// Not for use outside this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainsys/recompute/checkpoint.h"

namespace trainsys {

struct SavedFacts {
  SavedFacts(const at::Tensor& t, SecondRunCheck check);

  friend bool operator==(const SavedFacts&, const SavedFacts&) = default;

  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  std::optional<uint64_t> hash;  // of the values' bits, where they are checked
};

// "[2, 3] Float", or "[2, 3] Float with the bits 1f00..."
std::string Describe(const SavedFacts& facts);

}  // namespace trainsys
