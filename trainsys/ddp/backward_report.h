// What the ranks tell each other at the end of a backward. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainsys {

// Of one rank.
struct BackwardReport {
  enum class Outcome : uint8_t {
    kDone,     // it ran backward
    kNoBatch,  // it had no batch, and contributed zeros
    kGivenUp,  // an exception; see BucketedDDP::Reset
  };

  Outcome outcome = Outcome::kDone;
  std::optional<double> weight;  // of its losses, if it weighed them
  std::vector<bool> is_used;     // which parameters got a gradient
};

// All have the same number of parameters.
// Shape: EncodedBytes(parameters) bytes a rank.
size_t EncodedBytes(size_t parameters);
std::vector<uint8_t> Encode(const BackwardReport& report);
// In rank order. `bytes`: those of all ranks, one after another.
std::vector<BackwardReport> Decode(std::span<const uint8_t> bytes, size_t ranks,
                                   size_t parameters);

// The first rank that gave up.
std::optional<int> WhoGaveUp(const std::vector<BackwardReport>& reports);

// Has any rank a gradient for that parameter?
bool IsUsedAnywhere(const std::vector<BackwardReport>& reports,
                    size_t parameter);

// Has any rank a gradient for any parameter?
bool IsAnythingUsed(const std::vector<BackwardReport>& reports);

// "'a' on ranks 1 2, 'b' on all ranks": what ranks with a batch have no
// gradient for; empty if nothing.
std::string UnusedText(const std::vector<BackwardReport>& reports,
                       const std::vector<std::string>& names);

// The sum of the weights of the ranks with a batch.
// Errors: Error if one of them has none, or if the sum is not positive.
double TotalWeight(const std::vector<BackwardReport>& reports);

}  // namespace trainsys
