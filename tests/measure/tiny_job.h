// What the tests of measurements train.
#pragma once

#include <cstdint>

#include "trainsys/data/stories.h"
#include "trainsys/train/job.h"

namespace trainsys {

inline constexpr int64_t kTinyContext = 8;

inline ByteDataset TinyStories() {
  return ByteDataset::FromBytes(MakeStories(/*seed=*/1, 20'000), kTinyContext);
}

// Widths that need padding.
inline JobOptions TinyJob() {
  JobOptions options;
  options.model = {.dim = 20, .layers = 2, .heads = 2, .ffn = 30};
  options.batch = 2;
  options.bucket_kb = 8;
  return options;
}

}  // namespace trainsys
