#include "trainsys/budget/planned_activations.h"

#include <fmt/core.h>

#include <algorithm>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

// Letters as in Korthikanti et al.: s positions, b rows, h width, a heads;
// n = sb, e bytes an element.
struct Letters {
  int64_t n, h, e, asb, as2b;
};

Letters LettersOf(const ModelShape& shape, const ActivationOptions& options) {
  const int64_t n = options.positions * options.rows;
  return {n, shape.hidden, options.elem_bytes, shape.heads * n,
          shape.heads * n * options.positions};
}

constexpr int64_t kMaskBytes = 1;
constexpr int64_t kF32Bytes = 4;

void AddGpt2Core(const Letters& l, AttentionKernel kernel,
                 std::vector<SavedItem>& items) {
  if (kernel == AttentionKernel::kFlash) {
    items.push_back({"log-sum-exp of the scores", l.asb * kF32Bytes, true});
    return;
  }
  items.push_back({"softmax's output", l.as2b * l.e, true});
  items.push_back({"softmax's dropout mask", l.as2b * kMaskBytes, true});
  items.push_back({"dropout's output, mixed with v", l.as2b * l.e, true});
}

std::vector<SavedItem> Gpt2Items(const ModelShape& shape,
                                 const ActivationOptions& options) {
  const Letters l = LettersOf(shape, options);
  const int64_t nh = l.n * l.h * l.e;
  const int64_t nf = l.n * shape.ffn * l.e;
  const int64_t mask = l.n * l.h * kMaskBytes;
  std::vector<SavedItem> items = {{"first norm's input", nh},
                                  {"q, k and v projections' input", nh},
                                  {"q and k", 2 * nh},
                                  {"v", nh}};
  AddGpt2Core(l, options.attention, items);
  items.insert(items.end(), {{"output projection's input", nh},
                             {"attention's dropout mask", mask},
                             {"second norm's input", nh},
                             {"first linear layer's input", nh},
                             {"GELU's input", nf},
                             {"second linear layer's input", nf},
                             {"feed-forward dropout mask", mask}});
  return items;
}

std::vector<SavedItem> LlamaItems(const ModelShape& shape,
                                  const ActivationOptions& options) {
  const Letters l = LettersOf(shape, options);
  const int64_t nh = l.n * l.h * l.e;
  const int64_t nf = l.n * shape.ffn * l.e;
  const int64_t nq = l.n * shape.query_width() * l.e;
  const int64_t nkv = l.n * shape.key_width() * l.e;
  const SavedItem core =
      options.attention == AttentionKernel::kFlash
          ? SavedItem{"log-sum-exp of the scores", l.asb * kF32Bytes, true}
          : SavedItem{"softmax's output", l.as2b * l.e, true};
  return {{"first norm's input", nh},
          {"q, k and v projections' input", nh},
          {"q, rotated", nq},
          {"k, rotated", nkv},
          {"v", nkv},
          core,
          {"output projection's input", nq},
          {"second norm's input", nh},
          {"gate and up projections' input", nh},
          {"SiLU's input", nf},
          {"SiLU's output", nf},
          {"up projection's output", nf},
          {"down projection's input", nf}};
}

constexpr double kMaxBytes = 1e18;

// An upper bound of all that is computed here, without overflow.
double RoughBytes(const ModelShape& m, const ActivationOptions& options) {
  const auto n = static_cast<double>(options.rows) *
                 static_cast<double>(options.positions);
  const auto widths = static_cast<double>(m.hidden + m.query_width() + m.ffn);
  const double scores =
      static_cast<double>(m.heads) * static_cast<double>(options.positions) * 3;
  return n * 8 *
         (static_cast<double>(m.layers) * (8 * widths + scores) +
          static_cast<double>(m.vocab));
}

void RequirePositive(const char* what, int64_t value) {
  if (value >= 1) return;
  throw InvalidArgument(
      fmt::format("{} is {}, expected 1 or more", what, value));
}

void Check(const ModelShape& shape, const ActivationOptions& options,
           const RecomputePlan& plan) {
  RequirePositive("batch", options.rows);
  RequirePositive("seq", options.positions);
  if (shape.family == ModelFamily::kGpt2 && options.positions > shape.context) {
    throw InvalidArgument(fmt::format(
        "seq is {}, expected {} at most: {} has no more learned positions",
        options.positions, shape.context, shape.name));
  }
  if (static_cast<int64_t>(plan.size()) != shape.layers) {
    throw InvalidArgument(
        fmt::format("a recompute plan for {} blocks, expected one for {}",
                    plan.size(), shape.layers));
  }
  if (RoughBytes(shape, options) > kMaxBytes) {
    throw InvalidArgument(
        "activations beyond 1e18 bytes, expected fewer: use a smaller batch "
        "or shorter rows");
  }
}

}  // namespace

std::vector<SavedItem> BlockItems(const ModelShape& shape,
                                  const ActivationOptions& options) {
  return shape.family == ModelFamily::kGpt2 ? Gpt2Items(shape, options)
                                            : LlamaItems(shape, options);
}

int64_t BlockBytes(const ModelShape& shape, const ActivationOptions& options,
                   BlockRecompute recompute) {
  const std::vector<SavedItem> items = BlockItems(shape, options);
  if (recompute == BlockRecompute::kFull) return items[0].bytes;
  int64_t bytes = 0;
  for (const SavedItem& item : items) {
    const bool is_dropped =
        item.is_in_core && recompute == BlockRecompute::kSelective;
    if (!is_dropped) bytes += item.bytes;
  }
  return bytes;
}

int64_t PlannedActivations::HeadOrBlock() const {
  return std::max(head, recomputed_block);
}

PlannedActivations ActivationsOf(const ModelShape& shape,
                                 const ActivationOptions& options,
                                 const RecomputePlan& plan) {
  Check(shape, options, plan);
  const Letters l = LettersOf(shape, options);
  const int64_t whole = BlockBytes(shape, options, BlockRecompute::kNone);
  PlannedActivations out;
  int64_t most_in_backward = 0;
  for (BlockRecompute recompute : plan) {
    // Backward is in this block: later ones are released.
    most_in_backward = std::max(most_in_backward, out.blocks + whole);
    out.blocks += BlockBytes(shape, options, recompute);
  }
  out.recomputed_block = std::max<int64_t>(0, most_in_backward - out.blocks);
  constexpr int64_t kTokenBytes = 8;
  out.embedding = l.n * kTokenBytes;
  if (shape.family == ModelFamily::kGpt2) out.embedding += l.n * l.h;
  out.head = 2 * l.n * l.h * l.e + l.n * shape.vocab * std::max(l.e, kF32Bytes);
  return out;
}

}  // namespace trainsys
