#include "trainsys/budget/transformer_activations.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

// Letters: those of TransformerConfig; n = B * T.

// [T, T] without the part that the first half of the positions never sees:
// attention runs in two pieces of T / 2 and T - T / 2 rows.
int64_t ScoresOfHead(int64_t positions) {
  const int64_t half = positions / 2;
  return half * half + (positions - half) * positions;
}

// What an RMSNorm saves but for its input x, which is counted where it comes
// from: the root, x * root, its result for the product that follows, and with
// some versions x^2 for the mean.
int64_t NormElements(const TransformerConfig& config,
                     const ForwardShape& shape) {
  const int64_t tokens = shape.rows * shape.positions;
  const int64_t num_wide = shape.libtorch == Libtorch::k1 ? 3 : 2;
  return tokens + num_wide * tokens * config.dim;
}

// What the operations of one block save, in elements and in forward order.
struct BlockElements {
  int64_t input;  // x: norm and residual
  int64_t attention_norm;
  int64_t qkv;
  int64_t probabilities;  // results of the softmax
  int64_t joined;         // the heads' mix, for wo
  int64_t residual;       // y: norm and residual
  int64_t feed_forward_norm;
  int64_t feed_forward;  // w1 x, SiLU of it, w3 x, their product

  int64_t All() const {
    return input + attention_norm + qkv + probabilities + joined + residual +
           feed_forward_norm + feed_forward;
  }

  // In backward, where the core of the attention runs again: what came after
  // it is gone.
  int64_t UpToTheCore() const {
    return input + attention_norm + qkv + probabilities;
  }
};

BlockElements ElementsOfBlock(const TransformerConfig& config,
                              const ForwardShape& shape) {
  const int64_t tokens = shape.rows * shape.positions;
  const int64_t wide = tokens * config.dim;  // [B, T, D]
  const int64_t norm = NormElements(config, shape);
  return {.input = wide,
          .attention_norm = norm,
          .qkv = 3 * wide,
          .probabilities =
              shape.rows * config.heads * ScoresOfHead(shape.positions),
          .joined = wide,
          .residual = wide,
          .feed_forward_norm = norm,
          .feed_forward = 4 * tokens * config.ffn};
}

// The final norm with its input, the log-probabilities [n, V], and the loss's
// total weight, one number.
int64_t ElementsOfHead(const TransformerConfig& config,
                       const ForwardShape& shape) {
  const int64_t tokens = shape.rows * shape.positions;
  return tokens * config.dim + NormElements(config, shape) +
         tokens * config.vocab + 1;
}

int64_t ElementsKept(const BlockElements& block, BlockRecompute recompute) {
  switch (recompute) {
    case BlockRecompute::kNone:
      return block.All();
    case BlockRecompute::kSelective:
      return block.All() - block.probabilities;
    case BlockRecompute::kFull:
      return block.input;
  }
  throw InvalidArgument("recompute plan: an entry is no BlockRecompute");
}

// Of one block, when its second run has just ended; 0: it has none.
int64_t ElementsInBackward(const BlockElements& block,
                           BlockRecompute recompute) {
  if (recompute == BlockRecompute::kFull) return block.All();
  if (recompute == BlockRecompute::kSelective) return block.UpToTheCore();
  return 0;
}

void Check(const TransformerConfig& config, const ForwardShape& shape) {
  Validate(config);
  if (shape.rows < 1 || shape.positions < 1 ||
      shape.positions > config.context) {
    throw InvalidArgument(fmt::format(
        "ForwardShape: {} rows of {} positions; give at least 1 of each and at "
        "most {} positions, the model's context",
        shape.rows, shape.positions, config.context));
  }
  if (shape.element_bytes != 4 && shape.element_bytes != 8) {
    throw InvalidArgument(fmt::format(
        "ForwardShape: {} bytes an element; the model computes in f32 (4) or "
        "f64 (8)",
        shape.element_bytes));
  }
}

void Check(const TransformerConfig& config, const ForwardShape& shape,
           const RecomputePlan& plan) {
  Check(config, shape);
  if (static_cast<int64_t>(plan.size()) == config.layers) return;
  throw InvalidArgument(
      fmt::format("recompute plan: {} entries for {} layers; give one each",
                  plan.size(), config.layers));
}

// Recomputed blocks first, since in backward they come last: whatever runs
// again then has the least beside it. Full before selective, since what a full
// one keeps for those after it is less. No other order of the same counts has
// a lower peak: the last full block has all other full ones before it in any
// order, and the last selective one, if it is the last recomputed block, has
// all the others.
RecomputePlan LeastPeakPlan(int64_t full, int64_t selective, int64_t layers) {
  RecomputePlan plan(layers, BlockRecompute::kNone);
  const auto end_of_full = plan.begin() + full;
  std::fill(plan.begin(), end_of_full, BlockRecompute::kFull);
  std::fill(end_of_full, end_of_full + selective, BlockRecompute::kSelective);
  return plan;
}

struct Candidate {
  int64_t full = 0;
  int64_t selective = 0;
  int64_t flops = 0;
  int64_t peak_bytes = 0;
};

bool IsCheaper(const Candidate& a, const Candidate& b) {
  return std::pair(a.flops, a.peak_bytes) < std::pair(b.flops, b.peak_bytes);
}

bool IsSmaller(const Candidate& a, const Candidate& b) {
  return std::pair(a.peak_bytes, a.flops) < std::pair(b.peak_bytes, b.flops);
}

// Blocks are alike, so the counts say all. The last candidate is all full.
std::vector<Candidate> Candidates(const TransformerConfig& config,
                                  const ForwardShape& shape) {
  std::vector<Candidate> all;
  const int64_t layers = config.layers;
  for (int64_t full = 0; full <= layers; ++full) {
    for (int64_t selective = 0; full + selective <= layers; ++selective) {
      const RecomputePlan plan = LeastPeakPlan(full, selective, layers);
      all.push_back({full, selective, RecomputedFlops(config, shape, plan),
                     PeakSavedBytes(config, shape, plan)});
    }
  }
  return all;
}

[[noreturn]] void ThrowNothingFits(int64_t budget_bytes, int64_t full_bytes,
                                   int64_t least_bytes,
                                   const RecomputePlan& least) {
  throw InvalidArgument(fmt::format(
      "activation budget of {} bytes: nothing fits; full recomputation needs "
      "{} bytes, the least is {} ({}); give that much, fewer rows or shorter "
      "ones",
      budget_bytes, full_bytes, least_bytes, Describe(least)));
}

}  // namespace

int64_t SavedBytes::total() const {
  return std::accumulate(blocks.begin(), blocks.end(), head);
}

SavedBytes SavedAfterForward(const TransformerConfig& config,
                             const ForwardShape& shape,
                             const RecomputePlan& plan) {
  Check(config, shape, plan);
  const BlockElements block = ElementsOfBlock(config, shape);
  SavedBytes saved;
  for (const BlockRecompute recompute : plan) {
    saved.blocks.push_back(ElementsKept(block, recompute) *
                           shape.element_bytes);
  }
  saved.head = ElementsOfHead(config, shape) * shape.element_bytes;
  return saved;
}

// Backward lets go of the head and of the later blocks first. So what stands
// beside a block that runs again is what the blocks before it keep.
int64_t PeakSavedBytes(const TransformerConfig& config,
                       const ForwardShape& shape, const RecomputePlan& plan) {
  const SavedBytes saved = SavedAfterForward(config, shape, plan);
  const BlockElements block = ElementsOfBlock(config, shape);
  int64_t peak = saved.total();
  int64_t before = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    const int64_t again =
        ElementsInBackward(block, plan[i]) * shape.element_bytes;
    peak = std::max(peak, before + again);
    before += saved.blocks[i];
  }
  return peak;
}

int64_t RecomputedFlops(const TransformerConfig& config,
                        const ForwardShape& shape, const RecomputePlan& plan) {
  Check(config, shape, plan);
  const int64_t tokens = shape.rows * shape.positions;
  const int64_t weights = 4 * config.dim * config.dim +  // wq, wk, wv, wo
                          3 * config.dim * config.ffn;   // w1, w3, w2
  // q k^T and the mix: H heads of width D / H.
  const int64_t core =
      4 * shape.rows * config.dim * ScoresOfHead(shape.positions);
  int64_t flops = 0;
  for (const BlockRecompute recompute : plan) {
    if (recompute == BlockRecompute::kFull) flops += 2 * tokens * weights;
    if (recompute != BlockRecompute::kNone) flops += core;
  }
  return flops;
}

RecomputePlan PlanWithin(const TransformerConfig& config,
                         const ForwardShape& shape, int64_t budget_bytes) {
  Check(config, shape);
  const std::vector<Candidate> all = Candidates(config, shape);
  const Candidate* best = nullptr;
  for (const Candidate& candidate : all) {
    if (candidate.peak_bytes > budget_bytes) continue;
    if (best == nullptr || IsCheaper(candidate, *best)) best = &candidate;
  }
  const auto plan_of = [&config](const Candidate& c) {
    return LeastPeakPlan(c.full, c.selective, config.layers);
  };
  if (best != nullptr) return plan_of(*best);
  const Candidate& least = *std::min_element(all.begin(), all.end(), IsSmaller);
  ThrowNothingFits(budget_bytes, all.back().peak_bytes, least.peak_bytes,
                   plan_of(least));
}

}  // namespace trainsys
