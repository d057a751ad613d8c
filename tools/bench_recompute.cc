// What recomputation costs and saves: each policy against the FLOP model, and
// Checkpoint against a second forward.
#include <ATen/ops/ones.h>
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "trainsys/measure/interleaved.h"
#include "tools/parse.h"
#include "trainsys/budget/this_libtorch.h"
#include "trainsys/budget/transformer_activations.h"
#include "trainsys/data/stories.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/model/transformer_lm.h"
#include "trainsys/platform/blas.h"
#include "trainsys/recompute/checkpoint.h"
#include "trainsys/train/job.h"

namespace trainsys {
namespace {

constexpr char kDescription[] =
    "Times forward and backward of the default model on one rank under every\n"
    "recomputation policy, in turn, beside what the FLOPs of its matrix\n"
    "products and the closed form of its activations say.\n\n"
    "Example: bench_recompute --layers 12 --turns 40";

struct Policy {
  std::string name;
  JobOptions options;
  std::shared_ptr<TransformerLM> model;
};

at::Tensor Plainly(ModelPart, int64_t, const SegmentFunction& fn,
                   const std::vector<at::Tensor>& inputs) {
  return fn(inputs);
}

// A model's blocks without what is around them.
class Blocks {
 public:
  explicit Blocks(const TransformerConfig& config) {
    const auto positions = std::make_shared<const Positions>(
        config.context, config.heads, config.dim / config.heads);
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks_.push_back(std::make_shared<Block>(
          std::make_shared<Attention>(config, positions, i, Plainly),
          std::make_shared<FeedForward>(config), config.dim));
    }
  }

  at::Tensor Plain(at::Tensor x) const {
    for (const auto& block : blocks_) x = block->Forward(x);
    return x;
  }
  at::Tensor Checkpointed(at::Tensor x) const {
    for (const auto& block : blocks_) {
      x = Checkpoint([block](const at::Tensor& t) { return block->Forward(t); },
                     x);
    }
    return x;
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
};

class Bench {
 public:
  Bench(int64_t layers, int64_t rows) {
    for (const char* name :
         {"none", "selective", "every-4", "every-2", "full"}) {
      JobOptions options;
      options.model.layers = layers;
      options.batch = rows;
      options.recompute = name;
      policies_.push_back(
          {name, options, MakeModel(options, data_.context(), 0)});
    }
  }

  void Run(int turns) const {
    std::vector<std::function<void()>> variants;
    for (const Policy& policy : policies_) {
      variants.push_back([this, &policy] { Loss(policy).backward(); });
    }
    const auto ms = InterleavedMs(variants, turns);
    PrintHeader(turns);
    for (size_t i = 0; i < policies_.size(); ++i) {
      PrintLine(policies_[i], Median(ms[i]), Median(ms[0]));
    }
    CompareWithASecondForward(turns);
  }

 private:
  at::Tensor Loss(const Policy& policy) const {
    return LocalLoss(policy.options, data_, *policy.model, 0, 0);
  }

  // Blocks only, for they are all that runs twice.
  void CompareWithASecondForward(int turns) const {
    const TransformerConfig& config = policies_[0].model->config();
    const Blocks blocks(config);
    const at::Tensor x =
        at::ones({Shape().rows, Shape().positions, config.dim});
    const auto ms = InterleavedMs(
        {[&] { blocks.Plain(x); }, [&] { blocks.Plain(x).sum().backward(); },
         [&] { blocks.Checkpointed(x).sum().backward(); }},
        turns);
    const Quartiles beyond = OverTurns(ms[0].size(), [&ms](size_t turn) {
      return 100 * ((ms[2][turn] - ms[1][turn]) / ms[0][turn] - 1);
    });
    const double forward = Best(ms[0]);
    const double once = Best(ms[1]), twice = Best(ms[2]);
    fmt::print(
        "blocks alone, best turns: forward {:.1f} ms, with backward {:.1f} ms, "
        "checkpointed {:.1f} ms:\n"
        "{:+.1f} % of a forward beyond a second one; in pairs, quartiles "
        "{:+.1f} {:+.1f} {:+.1f} %\n",
        forward, once, twice, 100 * ((twice - once) / forward - 1), beyond.low,
        beyond.median, beyond.high);
  }

  ForwardShape Shape() const {
    return {policies_[0].options.batch, data_.context(), 4, kThisLibtorch};
  }

  // Blocks, then the whole model with its output layer.
  double FlopRatio(const Policy& policy) const {
    const TransformerConfig& config = policy.model->config();
    const auto flops = [&](const RecomputePlan& plan) {
      return static_cast<double>(RecomputedFlops(config, Shape(), plan));
    };
    const double output =
        2.0 * static_cast<double>(Shape().rows * Shape().positions *
                                  config.dim * config.vocab);
    const double forward = flops(PlanOfPolicy("full", config.layers)) + output;
    return 1 + flops(PlanOf(policy.options, data_.context())) / (3 * forward);
  }

  void PrintHeader(int turns) const {
    const TransformerConfig& config = policies_[0].model->config();
    fmt::print(
        "{}, one thread; {} layers of width {}, {} rows x {} tokens, f32; "
        "medians of {} turns\n"
        "{:<10} {:>10} {:>8} {:>8} {:>14} {:>14} {:>14}\n",
        Describe(DetectBlas()), config.layers, config.dim, Shape().rows,
        Shape().positions, turns, "recompute", "step, ms", "ratio", "FLOPs",
        "saved, bytes", "closed form", "peak, bytes");
  }

  void PrintLine(const Policy& policy, double ms, double none_ms) const {
    MemoryLedger ledger;
    const LedgerScope mine(ledger);
    const SavedBytesScope saved(policy.model->parameters());
    const at::Tensor loss = Loss(policy);
    const int64_t bytes = ledger.Current()[MemoryCategory::kActivation];
    loss.backward();
    fmt::print("{:<10} {:>10.1f} {:>8.3f} {:>8.3f} {:>14} {:>14} {:>14}\n",
               policy.name, ms, ms / none_ms, FlopRatio(policy), bytes,
               SavedAfterForward(policy.model->config(), Shape(),
                                 PlanOf(policy.options, data_.context()))
                   .total(),
               ledger.Peak().of_category[MemoryCategory::kActivation]);
  }

  const ByteDataset data_ =
      ByteDataset::FromBytes(MakeStories(1, 1 << 20), 256);
  std::vector<Policy> policies_;
};

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  trainsys::ReexecWithFastBlas(argv);
  CLI::App app(trainsys::kDescription, "bench_recompute");
  int turns = 20;
  int64_t layers = 4, rows = 4;
  app.add_option("--turns", turns, "of each variant")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--layers", layers, "blocks of the model")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--batch", rows, "rows")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&] {
    trainsys::UseOneBlasThread();
    trainsys::Bench(layers, rows).Run(turns);
    return 0;
  });
}
