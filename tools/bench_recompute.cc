// What recomputation costs and saves: each policy against the FLOP model, and
// Checkpoint against a second forward.
#include <ATen/ops/ones.h>
#include <fmt/core.h>
#include <torch/version.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/output_file.h"
#include "tools/parse.h"
#include "tools/run_bench.h"
#include "tools/setting.h"
#include "trainsys/data/stories.h"
#include "trainsys/measure/interleaved.h"
#include "trainsys/measure/recompute_cost.h"
#include "trainsys/model/transformer_lm.h"
#include "trainsys/platform/blas.h"
#include "trainsys/recompute/checkpoint.h"
#include "trainsys/terminal/progress.h"

namespace trainsys {
namespace {

using nlohmann::ordered_json;

constexpr char kDescription[] =
    "Times forward and backward of the default model on one rank under every\n"
    "recomputation policy, in turn, beside what the FLOPs of its matrix\n"
    "products and the closed form of its activations say. The report has the\n"
    "same figures.\n\n"
    "Example: bench_recompute --layers 12 --turns 40";

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

// Blocks alone, for they are all that runs twice: what a second run of them
// costs beyond a second forward.
struct SecondRun {
  double forward_ms = 0;  // best turns
  double with_backward_ms = 0;
  double checkpointed_ms = 0;
  double beyond_percent = 0;          // of a forward, by the best turns
  Quartiles beyond_percent_of_pairs;  // turn by turn
};

SecondRun CompareWithASecondForward(const TransformerConfig& config,
                                    int64_t rows, int turns,
                                    Progress& progress) {
  const Blocks blocks(config);
  const at::Tensor x = at::ones({rows, config.context, config.dim});
  const auto ms = InterleavedMs(
      {[&] { blocks.Plain(x); }, [&] { blocks.Plain(x).sum().backward(); },
       [&] { blocks.Checkpointed(x).sum().backward(); }},
      turns, Watch(progress, "blocks alone", turns));
  const double forward = Best(ms[0]), once = Best(ms[1]), twice = Best(ms[2]);
  return {forward, once, twice, 100 * ((twice - once) / forward - 1),
          OverTurns(ms[0].size(), [&ms](size_t turn) {
            return 100 * ((ms[2][turn] - ms[1][turn]) / ms[0][turn] - 1);
          })};
}

std::string Table(const RecomputeFinding& finding) {
  const TrainedModel& model = finding.model;
  std::string text = fmt::format(
      "one thread; {} layers of width {}, {} rows x {} tokens, f32; {} "
      "turns\n\n"
      "{:<10} {:>8} {:>20} {:>7} {:>13} {:>13}\n"
      "{:<10} {:>8} {:>20} {:>7} {:>13} {:>13}\n",
      model.layers, model.dim, model.rows, model.context, finding.turns,
      "recompute", "step, ms", "more than none, %", "FLOPs", "saved, bytes",
      "peak, bytes", "", "median", "quartiles, pairs", "say, %",
      "after forward", "in backward");
  bool is_as_formula = true;
  for (const RecomputeCost& cost : finding.costs) {
    const Quartiles& extra = cost.extra_percent;
    text += fmt::format(
        "{:<10} {:>8.1f} {:>6.1f} {:>6.1f} {:>6.1f} {:>7.1f} {:>13} {:>13}\n",
        cost.policy, cost.step_ms.median, extra.low, extra.median, extra.high,
        cost.model_extra_percent, cost.saved_bytes, cost.peak_bytes);
    is_as_formula = is_as_formula && cost.saved_bytes == cost.formula_bytes;
  }
  return text + (is_as_formula
                     ? "saved bytes are those of the closed form\n"
                     : "saved bytes are NOT those of the closed form\n");
}

std::string Text(const SecondRun& blocks) {
  const Quartiles& pairs = blocks.beyond_percent_of_pairs;
  return fmt::format(
      "\nblocks alone, best turns: forward {:.1f} ms, with backward {:.1f} "
      "ms,\n"
      "checkpointed {:.1f} ms: {:+.1f} % of a forward beyond a second one;\n"
      "in pairs, quartiles {:+.1f} {:+.1f} {:+.1f} %\n",
      blocks.forward_ms, blocks.with_backward_ms, blocks.checkpointed_ms,
      blocks.beyond_percent, pairs.low, pairs.median, pairs.high);
}

ordered_json AsJson(const Quartiles& quartiles) {
  return {{"low", quartiles.low},
          {"median", quartiles.median},
          {"high", quartiles.high}};
}

ordered_json AsJson(const RecomputeCost& cost) {
  return {{"policy", cost.policy},
          {"step_ms", AsJson(cost.step_ms)},
          {"extra_percent", AsJson(cost.extra_percent)},
          {"model_extra_percent", cost.model_extra_percent},
          {"saved_bytes", cost.saved_bytes},
          {"formula_bytes", cost.formula_bytes},
          {"peak_bytes", cost.peak_bytes}};
}

ordered_json AsJson(const TrainedModel& model) {
  return {{"parameters", model.parameters},
          {"vocab", model.vocab},
          {"context", model.context},
          {"dim", model.dim},
          {"layers", model.layers},
          {"heads", model.heads},
          {"ffn", model.ffn},
          {"rows", model.rows}};
}

ordered_json AsJson(const SecondRun& blocks) {
  return {{"forward_ms", blocks.forward_ms},
          {"with_backward_ms", blocks.with_backward_ms},
          {"checkpointed_ms", blocks.checkpointed_ms},
          {"beyond_percent", blocks.beyond_percent},
          {"beyond_percent_of_pairs", AsJson(blocks.beyond_percent_of_pairs)}};
}

class Bench {
 public:
  // Lifetime: `setting` outlives it.
  Bench(int64_t layers, int64_t rows, int turns, const Setting& setting)
      : turns_(turns), setting_(setting) {
    options_.model.layers = layers;
    options_.batch = rows;
  }

  void Run() {
    const auto data = ByteDataset::FromBytes(MakeStories(1, 1 << 20), 256);
    finding_ = MeasureRecompute(
        options_, data, turns_,
        [this](int64_t done, int64_t all, const std::string& detail) {
          progress_.Show("recomputation", done, all, detail);
        });
    progress_.Clear();
    fmt::print("{}{}", HeaderText(setting_), Table(finding_));
    std::fflush(stdout);
    TransformerConfig config = options_.model;
    config.context = data.context();
    blocks_ =
        CompareWithASecondForward(config, options_.batch, turns_, progress_);
    progress_.Clear();
    fmt::print("{}", Text(*blocks_));
  }

  std::string Json() const {
    ordered_json rows = ordered_json::array();
    for (const RecomputeCost& cost : finding_.costs) {
      rows.push_back(AsJson(cost));
    }
    ordered_json result = ResultOf(setting_, std::move(rows));
    result["model"] = finding_.costs.empty() ? nullptr : AsJson(finding_.model);
    result["turns"] = turns_;
    result["blocks_alone"] = blocks_ ? AsJson(*blocks_) : nullptr;
    return TextOf(result);
  }

 private:
  const int turns_;
  const Setting& setting_;
  JobOptions options_;
  Progress progress_;
  RecomputeFinding finding_;
  std::optional<SecondRun> blocks_;
};

int RunBench(int64_t layers, int64_t rows, int turns, const std::string& path) {
  OutputFile json("--json", path);
  Setting setting = SettingHere("bench_recompute");
  setting.versions.emplace_back("libtorch", TORCH_VERSION);
  setting.versions.emplace_back("BLAS", Describe(DetectBlas()));
  Bench bench(layers, rows, turns, setting);
  RunAndWrite([&bench] { bench.Run(); }, setting, json,
              [&bench] { return bench.Json(); });
  return 0;
}

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
  std::string json;
  app.add_option("--json", json, "write all figures to this file");
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&] {
    trainsys::UseOneBlasThread();
    return trainsys::RunBench(layers, rows, turns, json);
  });
}
