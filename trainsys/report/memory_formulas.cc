#include "trainsys/report/memory_formulas.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "trainsys/ddp/bucket_plan.h"
#include "trainsys/model/transformer_config.h"
#include "trainsys/report/sentence.h"

namespace trainsys {
namespace {

using enum MemoryCategory;

constexpr StepPoint kForward = StepPoint::kAfterForward;

// A formula with its numbers and what they give.
struct Written {
  std::string formula;
  std::string numbers;
  int64_t bytes = 0;
};

std::string Count(int64_t count) {
  return WithCommas(static_cast<double>(count), 0);
}

Written TimesParameters(const TrainedModel& m, int64_t bytes) {
  return {fmt::format("{} P", bytes),
          fmt::format("{} × {}", bytes, Count(m.parameters)),
          bytes * m.parameters};
}

// Rank 0's shard: whole lines of 64 bytes, 16 parameters.
Written ShardedParameters(const TrainedModel& m, int64_t bytes, int ranks) {
  constexpr int64_t kLine = 16;
  if (m.parameters % (kLine * ranks) == 0) {
    return {fmt::format("{} P / N", bytes),
            fmt::format("{} × {} / {}", bytes, Count(m.parameters), ranks),
            bytes * m.parameters / ranks};
  }
  const int64_t lines = (m.parameters + kLine * ranks - 1) / (kLine * ranks);
  return {fmt::format("{} ⌈P / (16 N)⌉", bytes * kLine),
          fmt::format("{} × ⌈{} / (16 × {})⌉", bytes * kLine,
                      Count(m.parameters), ranks),
          bytes * kLine * lines};
}

// K: of the final norm, the output layer and the loss. `wides`: tensors [n, D].
struct Head {
  std::string formula;
  int64_t elems = 0;
};

Head HeadOf(const TrainedModel& m, int64_t wides) {
  const int64_t n = m.rows * m.context;
  return {fmt::format("n ({} D + V + 1) + 1", wides),
          n * (wides * m.dim + m.vocab + 1) + 1};
}

// `norm_wides`: tensors [n, D] that a norm saves beside its input.
Written ActivationsOfNone(const TrainedModel& m, int64_t norm_wides) {
  const int64_t n = m.rows * m.context;
  const int64_t wides = 6 + 2 * norm_wides;
  const Head head = HeadOf(m, 1 + norm_wides);
  const int64_t block = n * (wides * m.dim + 4 * m.ffn + 2) +
                        3 * m.rows * m.heads * m.context * m.context / 4;
  return {fmt::format("4 (L (n ({} D + 4 F + 2) + 3/4 B H T²) + K)", wides),
          fmt::format(
              "4 × ({} × ({} × ({} × {} + 4 × {} + 2) + 3/4 × {} × {} × {}²) "
              "+ {})",
              m.layers, Count(n), wides, m.dim, m.ffn, m.rows, m.heads,
              m.context, Count(head.elems)),
          4 * (m.layers * block + head.elems)};
}

Written ActivationsOfFull(const TrainedModel& m, int64_t norm_wides) {
  const int64_t n = m.rows * m.context;
  const Head head = HeadOf(m, 1 + norm_wides);
  return {"4 (L n D + K)",
          fmt::format("4 × ({} × {} × {} + {})", m.layers, Count(n), m.dim,
                      Count(head.elems)),
          4 * (m.layers * n * m.dim + head.elems)};
}

Written PositionTables(const TrainedModel& m) {
  return {"12 T D + 12 T²",
          fmt::format("12 × {} × {} + 12 × {}²", m.context, m.dim, m.context),
          12 * m.context * m.dim + 12 * m.context * m.context};
}

Written Tokens(const TrainedModel& m) {
  const int64_t n = m.rows * m.context;
  return {"2 × 8 n", fmt::format("2 × 8 × {}", Count(n)), 16 * n};
}

TransformerConfig ConfigOf(const TrainedModel& m) {
  return {m.vocab, m.context, m.dim, m.layers, m.heads, m.ffn};
}

Written TwoBuckets(const MemoryFinding& memory) {
  std::vector<ParameterSize> sizes;
  for (const NamedSize& p : ParameterSizes(ConfigOf(memory.model))) {
    sizes.push_back({p.elements, 4, 0});
  }
  int64_t largest = 0;
  for (const Bucket& bucket : PlanBuckets(sizes, {memory.bucket_bytes})) {
    largest = std::max(largest, 4 * bucket.layout.elems);
  }
  return {"2 × largest bucket", fmt::format("2 × {}", Count(largest)),
          2 * largest};
}

// Tensors [n, D] that a norm saves beside its input: 3 with libtorch 1.13, 2
// with newer ones; told from the budget.
int64_t NormWides(const MemoryFinding& memory) {
  for (const MemoryCase& c : memory.cases) {
    const int64_t bytes = c.budget[kForward][kActivation];
    if (bytes == ActivationsOfNone(memory.model, 2).bytes ||
        bytes == ActivationsOfFull(memory.model, 2).bytes) {
      return 2;
    }
  }
  return 3;
}

class Lines {
 public:
  Lines(const MemoryFinding& memory, int ranks)
      : memory_(memory), ranks_(ranks) {}

  using Has = std::function<bool(const MemoryCase&)>;

  void Add(const std::string& what, MemoryCategory category, const Has& has,
           const Written& written) {
    const MemoryCase* shown = MostDifferent(category, has);
    if (shown == nullptr) return;
    FormulaLine line{.what = what,
                     .formula = written.formula,
                     .numbers = "",
                     .formula_bytes = shown->budget[kForward][category],
                     .ledger_bytes = shown->ledger[kForward][category]};
    if (line.formula_bytes == 0 && line.ledger_bytes == 0) return;
    if (written.bytes == line.formula_bytes) line.numbers = written.numbers;
    lines_.push_back(line);
  }

  std::vector<FormulaLine> Take() { return std::move(lines_); }

 private:
  const MemoryCase* MostDifferent(MemoryCategory category,
                                  const Has& has) const {
    const auto differs = [category](const MemoryCase& c) {
      return std::abs(c.ledger[kForward][category] -
                      c.budget[kForward][category]);
    };
    const MemoryCase* most = nullptr;
    for (const MemoryCase& c : memory_.cases) {
      if (c.ranks != ranks_ || !has(c)) continue;
      if (most == nullptr || differs(c) > differs(*most)) most = &c;
    }
    return most;
  }

  const MemoryFinding& memory_;
  const int ranks_;
  std::vector<FormulaLine> lines_;
};

}  // namespace

std::vector<FormulaLine> FormulaLines(const MemoryFinding& memory, int ranks) {
  const TrainedModel& m = memory.model;
  const auto all = [](const MemoryCase&) { return true; };
  const auto from_stage = [](int stage) {
    return [stage](const MemoryCase& c) { return c.zero >= stage; };
  };
  const auto below_stage = [](int stage) {
    return [stage](const MemoryCase& c) { return c.zero < stage; };
  };
  const auto with = [](const std::string& recompute) {
    return
        [recompute](const MemoryCase& c) { return c.recompute == recompute; };
  };
  const int64_t norm_wides = NormWides(memory);
  Lines lines(memory, ranks);
  lines.Add("parameters", kParameter, all, TimesParameters(m, 4));
  lines.Add("gradients, DDP, ZeRO-1", kGradient, below_stage(2),
            TimesParameters(m, 4));
  lines.Add("gradients, ZeRO-2", kGradient, from_stage(2),
            ShardedParameters(m, 4, ranks));
  lines.Add("optimizer state, DDP", kOptimizerState, below_stage(1),
            TimesParameters(m, 8));
  lines.Add("optimizer, ZeRO-1 and 2", kOptimizerState, from_stage(1),
            ShardedParameters(m, 8, ranks));
  lines.Add("activations, none", kActivation, with("none"),
            ActivationsOfNone(m, norm_wides));
  lines.Add("activations, full", kActivation, with("full"),
            ActivationsOfFull(m, norm_wides));
  lines.Add("buffers: 2 of ZeRO-2", kCommunication, from_stage(2),
            TwoBuckets(memory));
  lines.Add("buffers: positions", kOther, all, PositionTables(m));
  lines.Add("buffers: tokens", kInput, all, Tokens(m));
  lines.Add("buffers: loss", kTemporary, all, {"4", "4", 4});
  lines.Add("padding", kPadding, all, {"of each tensor to 64 bytes", "", -1});
  return lines.Take();
}

std::string FormulaLetters(const MemoryFinding& memory, int ranks) {
  const TrainedModel& m = memory.model;
  const Head head = HeadOf(m, 1 + NormWides(memory));
  return fmt::format(
      "P = 2 V D + L (4 D² + 3 D F + 2 D) + D = {} parameters in f32; V = {} "
      "tokens, D = {} wide, L = {} layers, H = {} heads, F = {} feed-forward; "
      "N = {} ranks, B = {} rows each, T = {} positions, n = B T = {}; K = {} "
      "= {} at the output",
      Count(m.parameters), m.vocab, m.dim, m.layers, m.heads, m.ffn, ranks,
      m.rows, m.context, Count(m.rows * m.context), head.formula,
      Count(head.elems));
}

}  // namespace trainsys
