// What recomputation costs and saves: each policy against the FLOP model, and
// Checkpoint against a second forward.
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "tools/interleaved.h"
#include "tools/parse.h"
#include "trainsys/budget/this_libtorch.h"
#include "trainsys/budget/transformer_activations.h"
#include "trainsys/data/stories.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/model/transformer_lm.h"
#include "trainsys/platform/blas.h"
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
    variants.push_back([this] { Loss(policies_.front()); });
    const std::vector<double> ms = InterleavedMs(variants, turns);
    PrintHeader(turns);
    for (size_t i = 0; i < policies_.size(); ++i) {
      PrintLine(policies_[i], ms[i], ms[0]);
    }
    const double none = ms[0], full = ms[policies_.size() - 1];
    const double forward = ms.back();
    fmt::print(
        "one forward {:.1f} ms; full takes {:.1f} ms more than none, {:+.1f} % "
        "of a step beyond a second forward (target: at most 2 %)\n",
        forward, full - none, 100 * (full / (none + forward) - 1));
  }

 private:
  at::Tensor Loss(const Policy& policy) const {
    return LocalLoss(policy.options, data_, *policy.model, 0, 0);
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
