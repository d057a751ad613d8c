#include "trainsys/train/segment_runner.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "collectives/errors.h"
#include "trainsys/recompute/checkpoint.h"

namespace trainsys {
namespace {

BlockRecompute Of(const RecomputePlan& plan, int64_t block) {
  const auto blocks = static_cast<int64_t>(plan.size());
  if (block >= 0 && block < blocks) return plan[block];
  throw collectives::InvalidArgument(fmt::format(
      "recompute plan: the model runs block {}, the plan has {}; give a plan "
      "with one entry a block",
      block, blocks));
}

bool IsRecomputed(ModelPart part, BlockRecompute recompute) {
  return part == ModelPart::kBlock ? recompute == BlockRecompute::kFull
                                   : recompute == BlockRecompute::kSelective;
}

std::string Label(ModelPart part, int64_t block) {
  return fmt::format("{}block {}",
                     part == ModelPart::kAttentionCore ? "attention of " : "",
                     block);
}

}  // namespace

SegmentRunner RunnerFor(RecomputePlan plan) {
  return [plan = std::move(plan)](ModelPart part, int64_t block,
                                  const SegmentFunction& fn,
                                  const std::vector<at::Tensor>& inputs) {
    if (!IsRecomputed(part, Of(plan, block))) return fn(inputs);
    return Checkpoint({.label = Label(part, block)}, fn, inputs);
  };
}

}  // namespace trainsys
