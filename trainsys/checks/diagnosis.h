// From what a check measured to what is wrong, in words. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainsys/checks/backward_traffic.h"

namespace trainsys {

inline constexpr size_t kCheckSteps = 3;

struct Finding {
  std::string seen;  // with numbers
  std::string expected;
};

// After FinishGradientSync, on one rank. Differences are absolute.
struct GradientFacts {
  int64_t num_missing = 0;
  double largest = 0;        // of the mean over ranks
  double from_mean = 0;      // of the gradients, from that mean
  double from_sum = 0;       // from ranks times it
  double from_fraction = 0;  // from the mean divided once more
  double from_own = 0;       // from what this rank alone computed
};

// Of one rank that trained kCheckSteps steps. Trivially copyable: ranks send
// it to each other.
struct RankFacts {
  double start_from_rank0 = 0;  // parameters, after construction
  std::array<GradientFacts, kCheckSteps> gradients;
  std::array<BackwardTraffic, kCheckSteps> traffic;
  double norm = 0;  // GradNorm() in step 1
  double expected_norm = 0;
  // The optimizer's step 1.
  double update_from_rank0 = 0;
  int64_t num_unchanged = 0;  // elements that should have changed
  int64_t first_unchanged = 0;
  int64_t state_bytes = 0;  // as StateBytes() says
  int64_t kept_bytes = 0;   // by the optimizer in host memory, as counted
  // At the end.
  int64_t is_equal = 0;   // to reference A, bit for bit
  double difference = 0;  // from reference B
};

// What a run is held against.
struct TrainingLimits {
  double tolerance = 0;  // of RankFacts::difference
  bool needs_equal_bits = false;
  int64_t num_parameters = 0;  // tensors
  int64_t num_elems = 0;       // of all parameters, f32
  int64_t largest_elems = 0;   // of one parameter
  int64_t bucket_bytes = 0;    // what the DDP was asked for
  bool has_overlap = false;    // to be checked
  bool has_sharding = false;   // to be checked
};

// Of AdamW, unsharded: two moments of 4 bytes an element.
int64_t StateBytes(const TrainingLimits& limits);

// Result: the first thing that is wrong, in the order in which one builds the
// parts; nothing if all is well.
std::optional<Finding> Diagnose(const TrainingLimits& limits,
                                const std::vector<RankFacts>& ranks);

// Of a model of checkpointed segments, beside the same one without.
struct RecomputeFacts {
  int64_t num_segments = 0;
  int64_t num_parameters = 0;  // tensors
  double output_difference = 0;
  int64_t num_missing = 0;  // parameters without a gradient
  bool has_input_gradient = false;
  int64_t most_accumulations = 0;  // of one parameter, in one backward
  int64_t backward_runs = 0;       // of segments, during backward
  int64_t raw_bytes = 0;
  int64_t distinct_bytes = 0;
  int64_t plain_raw_bytes = 0;
  int64_t plain_distinct_bytes = 0;
  double difference = 0;  // of gradients
  bool is_equal = false;
  double dropout_difference = 0;  // the same with dropout
  bool is_equal_with_dropout = false;
  bool has_same_generator = false;  // the same numbers are drawn after it
};

std::optional<Finding> Diagnose(const RecomputeFacts& facts, double tolerance,
                                bool needs_equal_bits);

}  // namespace trainsys
