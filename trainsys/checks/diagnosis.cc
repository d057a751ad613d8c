#include "trainsys/checks/diagnosis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace trainsys {
namespace {

using Ranks = std::vector<RankFacts>;

// Rounding after a few steps on parameters that are nearly the same.
constexpr double kRelative = 1e-3;

constexpr int64_t kGradientBytes = 4;  // of an element
constexpr int64_t kMomentsBytes = 8;   // of an element
// To which a part may pad each tensor.
constexpr int64_t kAlignmentBytes = 64;
// The share of the whole from which on it counts as the whole.
constexpr double kNearly = 0.9;
// Of a shard's moments: a rank may keep its parameters a second time, which is
// half as much again.
constexpr double kWithCopy = 1.6;

std::optional<Finding> FindInStart(const Ranks& ranks) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].start_from_rank0 == 0) continue;
    return Finding{
        fmt::format("rank {} starts with other parameters than rank 0, up to "
                    "{:.2g} apart",
                    r, ranks[r].start_from_rank0),
        "the constructor gives every rank the parameters of rank 0"};
  }
  return std::nullopt;
}

std::string DescribeWrong(const GradientFacts& g, size_t rank, size_t ranks) {
  const double close = kRelative * g.largest;
  if (g.from_own <= close) {
    return fmt::format(
        "gradients are rank {}'s own, up to {:.2g} from the "
        "mean over ranks: they are not averaged",
        rank, g.from_mean);
  }
  if (g.from_sum <= close * static_cast<double>(ranks)) {
    return fmt::format(
        "gradients are {} times the mean over ranks: sums, not "
        "averages",
        ranks);
  }
  if (g.from_fraction <= close) {
    return fmt::format(
        "gradients are 1/{} of the mean over ranks: divided by "
        "the number of ranks twice",
        ranks);
  }
  return fmt::format(
      "gradients of rank {} are up to {:.2g} from the mean over "
      "ranks, whose largest is {:.2g}",
      rank, g.from_mean, g.largest);
}

std::optional<Finding> FindInGradients(const TrainingLimits& limits,
                                       const Ranks& ranks, size_t step) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    const GradientFacts& g = ranks[r].gradients[step];
    if (g.num_missing > 0) {
      return Finding{
          fmt::format("step {}: {} of {} parameters of rank {} "
                      "have no gradient after FinishGradientSync",
                      step + 1, g.num_missing, limits.num_parameters, r),
          "each has the mean over ranks"};
    }
    if (g.from_mean <= kRelative * g.largest) continue;
    return Finding{
        fmt::format("step {}: {}", step + 1, DescribeWrong(g, r, ranks.size())),
        step == 0 ? "each is the mean over ranks after FinishGradientSync"
                  : "as in step 1, which was right: are gradients dropped, and "
                    "is all that counts set back, before the next step?"};
  }
  return std::nullopt;
}

std::optional<Finding> FindInUpdate(const TrainingLimits& limits,
                                    const Ranks& ranks) {
  if (std::ranges::all_of(ranks, [&](const RankFacts& rank) {
        return rank.num_unchanged == limits.num_elems;
      })) {
    return Finding{"step 1: the optimizer changed no parameter",
                   "each rank updates its shard, and gets the others'"};
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].update_from_rank0 == 0) continue;
    return Finding{
        fmt::format("after step 1 rank {}'s parameters are up to {:.2g} from "
                    "rank 0's: the shards were not gathered",
                    r, ranks[r].update_from_rank0),
        "the same bits on all ranks"};
  }
  const RankFacts& rank = ranks[0];
  if (rank.num_unchanged == 0) return std::nullopt;
  return Finding{
      fmt::format("step 1 left {} of {} elements as they were, the first of "
                  "them number {}",
                  rank.num_unchanged, limits.num_elems, rank.first_unchanged),
      "each is in one rank's shard, also where the number of ranks does not "
      "divide that of elements"};
}

// How many bytes of optimizer state are right, of all ranks and of one.
struct StateLimits {
  StateLimits(const TrainingLimits& limits, size_t ranks)
      : full(static_cast<double>(StateBytes(limits))),
        part(full / static_cast<double>(ranks)) {
    // Two moments of each parameter, padded.
    const auto padding =
        static_cast<double>(2 * kAlignmentBytes * limits.num_parameters);
    // Who deals out whole parameters, the largest first, gives no rank more
    // than the largest above the mean.
    const double whole_parameters =
        part + kMomentsBytes * static_cast<double>(limits.largest_elems);
    most_of_rank =
        std::max(kWithCopy * part, std::min(whole_parameters, kNearly * full)) +
        padding;
    most_of_all = kWithCopy * full + padding * static_cast<double>(ranks);
  }

  double full;          // unsharded
  double part;          // of it, for each rank
  double most_of_rank;  // where shards are as uneven as they may be
  double most_of_all;
};

// Of StateBytes() and what was counted the larger.
int64_t HeldBytes(const RankFacts& rank) {
  return std::max(rank.state_bytes, rank.kept_bytes);
}

// "rank 0 holds 100 bytes of optimizer state": what it says, where that is too
// much already.
std::string DescribeHeld(const RankFacts& rank, size_t number, double most) {
  if (static_cast<double>(rank.state_bytes) > most) {
    return fmt::format("rank {} holds {} bytes of optimizer state", number,
                       rank.state_bytes);
  }
  return fmt::format(
      "rank {} keeps {} bytes beside parameters and gradients (StateBytes() "
      "says {})",
      number, rank.kept_bytes, rank.state_bytes);
}

std::optional<Finding> FindInShard(const StateLimits& state,
                                   const RankFacts& rank, size_t number) {
  const auto held = static_cast<double>(HeldBytes(rank));
  if (held <= state.most_of_rank) return std::nullopt;
  const bool is_whole = held >= kNearly * state.full;
  return Finding{
      fmt::format("{}, where the whole is {:.0f}: {}",
                  DescribeHeld(rank, number, state.most_of_rank), state.full,
                  is_whole ? "it is not sharded" : "more than a shard"),
      fmt::format("about {:.0f} bytes a rank", state.part)};
}

std::optional<Finding> FindInState(const TrainingLimits& limits,
                                   const Ranks& ranks) {
  const StateLimits state(limits, ranks.size());
  int64_t said = 0, held = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (auto found = FindInShard(state, ranks[r], r)) return found;
    said += ranks[r].state_bytes;
    held += HeldBytes(ranks[r]);
  }
  if (static_cast<double>(held) > state.most_of_all) {
    return Finding{
        fmt::format("all ranks together hold {} bytes beside parameters and "
                    "gradients (StateBytes() says {})",
                    held, said),
        fmt::format("{:.0f}, each element's two moments on one rank only",
                    state.full)};
  }
  if (static_cast<double>(said) >= kNearly * state.full) return std::nullopt;
  return Finding{
      fmt::format("{} bytes of optimizer state on all ranks together", said),
      fmt::format("{:.0f}, two moments of 4 bytes an element", state.full)};
}

std::optional<Finding> FindInNorm(const Ranks& ranks) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankFacts& rank = ranks[r];
    if (std::abs(rank.norm - rank.expected_norm) <=
        kRelative * rank.expected_norm) {
      continue;
    }
    return Finding{
        fmt::format("step 1: GradNorm() of rank {} is {:.4g}", r, rank.norm),
        fmt::format("{:.4g}, the 2-norm of all gradients", rank.expected_norm)};
  }
  return std::nullopt;
}

std::optional<Finding> FindInNumbers(const TrainingLimits& limits,
                                     const Ranks& ranks) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].difference > limits.tolerance) {
      return Finding{
          fmt::format("after {} steps rank {}'s parameters differ by {:.1e} "
                      "from plain libtorch's on the whole batch",
                      kCheckSteps, r, ranks[r].difference),
          fmt::format("at most {:.0e}", limits.tolerance)};
    }
    if (limits.needs_equal_bits && !ranks[r].is_equal) {
      return Finding{
          fmt::format("after {} steps rank {} has DIFFERENT bits from one rank "
                      "in micro-steps",
                      kCheckSteps, r),
          "equal bits"};
    }
  }
  return std::nullopt;
}

std::optional<Finding> FindInBytes(const BackwardTraffic& t,
                                   const TrainingLimits& limits) {
  const int64_t gradients = kGradientBytes * limits.num_elems;
  if (t.bytes_inside < gradients) {
    return Finding{fmt::format("reductions of {} bytes inside backward, where "
                               "the gradients are {}",
                               t.bytes_inside, gradients),
                   "every gradient travels in a bucket posted from a hook"};
  }
  if (t.blocking_after > 0) {
    return Finding{
        fmt::format("{} blocking reductions after backward", t.blocking_after),
        "only Wait for those posted inside it"};
  }
  const int64_t most =
      std::max(limits.bucket_bytes, kGradientBytes * limits.largest_elems);
  if (t.largest_bytes <= most + kAlignmentBytes * limits.num_parameters) {
    return std::nullopt;
  }
  return Finding{
      fmt::format("a bucket of {} bytes, where bucket_bytes is {} and the "
                  "largest gradient {}",
                  t.largest_bytes, limits.bucket_bytes,
                  kGradientBytes * limits.largest_elems),
      "buckets of at most bucket_bytes, but for a single larger gradient"};
}

std::optional<Finding> FindInTraffic(const BackwardTraffic& t,
                                     const TrainingLimits& limits) {
  if (t.blocking > 0) {
    return Finding{fmt::format("{} blocking reductions inside backward, which "
                               "stands still meanwhile",
                               t.blocking),
                   "asynchronous ones: Start..., and Wait after backward"};
  }
  if (t.posted_inside == 0 || t.posted_after > 0) {
    return Finding{
        fmt::format("{} of {} asynchronous reductions were posted "
                    "inside backward",
                    t.posted_inside, t.posted_inside + t.posted_after),
        "all, from the hook of each bucket's last gradient"};
  }
  if (t.waited_inside > 0) {
    return Finding{fmt::format("{} of {} reductions were waited for inside "
                               "backward",
                               t.waited_inside, t.posted_inside),
                   "Wait in FinishGradientSync"};
  }
  if (t.posted_inside == 1) {
    return Finding{
        "1 reduction inside backward: all gradients are in one "
        "bucket, and it is full when backward ends",
        "several buckets of at most bucket_bytes"};
  }
  if (t.posted_inside >= limits.num_parameters) {
    return Finding{fmt::format("{} reductions inside backward for {} "
                               "parameters: one each, no buckets",
                               t.posted_inside, limits.num_parameters),
                   "buckets that are filled up to bucket_bytes"};
  }
  if (t.before_last == 0) {
    return Finding{fmt::format("all {} reductions were posted after the last "
                               "gradient was ready",
                               t.posted_inside),
                   "each as soon as its own bucket is full"};
  }
  return FindInBytes(t, limits);
}

std::optional<Finding> FindInOverlap(const TrainingLimits& limits,
                                     const Ranks& ranks) {
  for (size_t step = 0; step < kCheckSteps; ++step) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      auto found = FindInTraffic(ranks[r].traffic[step], limits);
      if (!found) continue;
      found->seen =
          fmt::format("step {}, rank {}: {}", step + 1, r, found->seen);
      return found;
    }
  }
  return std::nullopt;
}

std::optional<Finding> FindInGraph(const RecomputeFacts& f, double tolerance) {
  if (!(f.output_difference <= tolerance)) {
    return Finding{fmt::format("outputs differ by {:.2g} from those of the "
                               "segments themselves",
                               f.output_difference),
                   "what fn(x) returns"};
  }
  if (f.num_missing > 0) {
    return Finding{
        fmt::format("{} of {} parameters have no gradient after backward",
                    f.num_missing, f.num_parameters),
        "one for each: the second forward runs with gradients switched on, and "
        "what "
        "backward returns goes on to the segment before"};
  }
  if (!f.has_input_gradient) {
    return Finding{"the input has no gradient after backward",
                   "backward returns the gradient of x"};
  }
  if (f.most_accumulations != 1) {
    return Finding{fmt::format("a parameter's gradient was accumulated {} "
                               "times in one backward, and so its hooks ran",
                               f.most_accumulations),
                   "once; the first forward builds no graph, and the second "
                   "runs backward once"};
  }
  return std::nullopt;
}

std::optional<Finding> FindInSaved(const RecomputeFacts& f) {
  if (2 * f.raw_bytes > f.plain_raw_bytes) {
    return Finding{fmt::format("{} of {} bytes raw were saved for backward",
                               f.raw_bytes, f.plain_raw_bytes),
                   "less than half, the input of each segment only"};
  }
  if (2 * f.distinct_bytes > f.plain_distinct_bytes) {
    return Finding{
        fmt::format("{} of {} distinct bytes were saved for backward",
                    f.distinct_bytes, f.plain_distinct_bytes),
        "less than half, the input of each segment only"};
  }
  if (f.backward_runs != f.num_segments) {
    return Finding{fmt::format("{} segments ran {} times in backward",
                               f.num_segments, f.backward_runs),
                   "each once"};
  }
  return std::nullopt;
}

std::optional<Finding> FindInNumbers(const RecomputeFacts& f, double tolerance,
                                     bool needs_equal_bits) {
  if (!(f.difference <= tolerance)) {
    return Finding{fmt::format("gradients differ by {:.2g} from those without "
                               "recomputation",
                               f.difference),
                   fmt::format("at most {:.0e}", tolerance)};
  }
  if (!(f.dropout_difference <= tolerance)) {
    return Finding{
        fmt::format("with dropout gradients differ by {:.2g}: the second "
                    "forward draws other random numbers",
                    f.dropout_difference),
        "the generator starts again from where the first forward found it"};
  }
  if (!f.has_same_generator) {
    return Finding{
        "after backward other random numbers are drawn than "
        "without recomputation",
        "the generator is put back after the second forward"};
  }
  if (needs_equal_bits && !(f.is_equal && f.is_equal_with_dropout)) {
    return Finding{"gradients have DIFFERENT bits with recomputation",
                   "equal bits"};
  }
  return std::nullopt;
}

}  // namespace

int64_t StateBytes(const TrainingLimits& limits) {
  return kMomentsBytes * limits.num_elems;
}

std::optional<Finding> Diagnose(const TrainingLimits& limits,
                                const Ranks& ranks) {
  if (auto found = FindInStart(ranks)) return found;
  if (auto found = FindInGradients(limits, ranks, 0)) return found;
  // Before later gradients, which are those of wrong parameters otherwise.
  if (limits.has_sharding) {
    if (auto found = FindInUpdate(limits, ranks)) return found;
    if (auto found = FindInState(limits, ranks)) return found;
    if (auto found = FindInNorm(ranks)) return found;
  }
  for (size_t step = 1; step < kCheckSteps; ++step) {
    if (auto found = FindInGradients(limits, ranks, step)) return found;
  }
  if (auto found = FindInNumbers(limits, ranks)) return found;
  if (!limits.has_overlap) return std::nullopt;
  return FindInOverlap(limits, ranks);
}

std::optional<Finding> Diagnose(const RecomputeFacts& facts, double tolerance,
                                bool needs_equal_bits) {
  if (auto found = FindInGraph(facts, tolerance)) return found;
  if (auto found = FindInSaved(facts)) return found;
  return FindInNumbers(facts, tolerance, needs_equal_bits);
}

}  // namespace trainsys
