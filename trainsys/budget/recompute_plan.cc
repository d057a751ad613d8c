#include "trainsys/budget/recompute_plan.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

constexpr std::string_view kEvery = "every-";

// K of "every-K".
std::optional<int64_t> Stride(std::string_view policy) {
  if (policy.substr(0, kEvery.size()) != kEvery) return std::nullopt;
  const char* const end = policy.data() + policy.size();
  int64_t stride = 0;
  const auto [parsed, error] =
      std::from_chars(policy.data() + kEvery.size(), end, stride);
  if (error != std::errc() || parsed != end || stride < 1) return std::nullopt;
  return stride;
}

RecomputePlan EveryKth(int64_t stride, int64_t layers) {
  RecomputePlan plan(layers, BlockRecompute::kNone);
  for (int64_t i = stride - 1; i < layers; i += stride) {
    plan[i] = BlockRecompute::kFull;
  }
  return plan;
}

const char* NameOf(BlockRecompute recompute) {
  switch (recompute) {
    case BlockRecompute::kNone:
      return "none";
    case BlockRecompute::kSelective:
      return "selective";
    case BlockRecompute::kFull:
      return "full";
  }
  return "unknown";
}

// One past the last block that is like block `first` without a gap.
size_t EndOfRun(const RecomputePlan& plan, size_t first) {
  size_t end = first + 1;
  while (end < plan.size() && plan[end] == plan[first]) ++end;
  return end;
}

}  // namespace

RecomputePlan PlanOfPolicy(std::string_view policy, int64_t layers) {
  if (layers < 1) {
    throw InvalidArgument(
        fmt::format("PlanOfPolicy: layers is {}; give at least 1", layers));
  }
  if (policy == "none") return RecomputePlan(layers, BlockRecompute::kNone);
  if (policy == "full") return RecomputePlan(layers, BlockRecompute::kFull);
  if (policy == "selective") {
    return RecomputePlan(layers, BlockRecompute::kSelective);
  }
  if (const auto stride = Stride(policy)) return EveryKth(*stride, layers);
  throw InvalidArgument(fmt::format(
      "recompute policy '{}' is unknown; give none, selective, full or every-K "
      "with K at least 1, such as every-2",
      policy));
}

std::string Describe(const RecomputePlan& plan) {
  std::string text;
  for (size_t first = 0; first < plan.size();) {
    const size_t end = EndOfRun(plan, first);
    const char* const name = NameOf(plan[first]);
    if (first == 0 && end == plan.size()) return name;
    text += first == 0 ? "blocks " : ", ";
    text += end - first == 1 ? fmt::format("{} {}", first, name)
                             : fmt::format("{}-{} {}", first, end - 1, name);
    first = end;
  }
  return text;
}

}  // namespace trainsys
