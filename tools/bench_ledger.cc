// What the memory ledger costs: an allocation, and a step.
#include <ATen/ops/empty.h>
#include <fmt/core.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/output_file.h"
#include "tools/parse.h"
#include "tools/run_bench.h"
#include "tools/setting.h"
#include "tools/without_ledger.h"
#include "trainsys/data/stories.h"
#include "trainsys/measure/interleaved.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/model/transformer_lm.h"
#include "trainsys/platform/blas.h"
#include "trainsys/terminal/progress.h"
#include "trainsys/train/job.h"

namespace trainsys {
namespace {

using nlohmann::ordered_json;

constexpr char kDescription[] =
    "Times allocations, and forward and backward of the default model on one\n"
    "rank, with the memory ledger (allocator, events, saved bytes) and with\n"
    "libtorch's own allocator, in turn. Both share one heap, and one's sizes\n"
    "fit the other's holes badly: --only has a process of its own for each.\n\n"
    "Example: bench_ledger --turns 100";

constexpr int kAllocations = 100'000;

void Allocate() {
  for (int i = 0; i < kAllocations; ++i) at::empty({64, 256}, at::kFloat);
}

struct Model {
  JobOptions options;
  ByteDataset data = ByteDataset::FromBytes(MakeStories(1, 1 << 20), 256);
  std::shared_ptr<TransformerLM> lm = MakeModel(options, data.context(), 0);

  void ForwardAndBackward() const {
    for (const at::Tensor& p : lm->parameters()) p.mutable_grad().reset();
    LocalLoss(options, data, *lm, /*step=*/0, /*rank=*/0).backward();
  }
};

// Of one thing without the ledger and with it; empty: not timed.
struct Times {
  std::string what;
  std::vector<double> without_us, with_us;  // of each turn

  bool HasBoth() const { return !without_us.empty() && !with_us.empty(); }
  Quartiles MorePercent() const {
    return OverTurns(with_us.size(), [this](size_t turn) {
      return 100 * (with_us[turn] / without_us[turn] - 1);
    });
  }
  double BestMorePercent() const {
    return 100 * (Best(with_us) / Best(without_us) - 1);
  }
};

std::vector<double> Scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

ordered_json AsJson(const Times& times) {
  ordered_json row{
      {"what", times.what},
      {"turns", std::max(times.without_us.size(), times.with_us.size())}};
  const auto add = [&row](const std::string& name, const auto& us) {
    row["best_" + name] = us.empty() ? ordered_json() : ordered_json(Best(us));
    row["median_" + name] =
        us.empty() ? ordered_json() : ordered_json(Median(us));
  };
  add("without_us", times.without_us);
  add("with_us", times.with_us);
  row["best_more_percent"] = nullptr;
  row["more_percent"] = nullptr;
  if (!times.HasBoth()) return row;
  const Quartiles more = times.MorePercent();
  row["best_more_percent"] = times.BestMorePercent();
  row["more_percent"] = {
      {"p25", more.low}, {"median", more.median}, {"p75", more.high}};
  return row;
}

// Step in ms, allocation in ns: `factor` from us.
std::string LineOf(const Times& times, const std::string& unit, double factor) {
  const Quartiles more = times.MorePercent();
  return fmt::format(
      "{:<25} {:>8.2f} {:>8.2f} {:>+7.2f} %  {:>+7.2f} {:>+7.2f} {:>+7.2f} %\n",
      times.what + ", " + unit, Best(times.without_us) * factor,
      Best(times.with_us) * factor, times.BestMorePercent(), more.low,
      more.median, more.high);
}

class Bench {
 public:
  // Lifetime: `setting` outlives it.
  Bench(int turns, const Setting& setting) : turns_(turns), setting_(setting) {}

  void Run() {
    MemoryLedger ledger;
    const LedgerScope mine(ledger);
    const Model model;
    fmt::print(
        "{}one thread; {} turns in pairs\nallocation: at::empty of "
        "[64, 256] f32, and free\n\n{:<25} {:>8} {:>8} {:>9}  {:>25}\n",
        HeaderText(setting_), turns_, "best of all turns", "without", "with",
        "more", "quartiles of pairs");
    Compare("allocation", "ns", kAllocations, Allocate, Allocate);
    const auto step = [&model] { model.ForwardAndBackward(); };
    Compare("forward and backward", "ms", 1, step, [&model] {
      const SavedBytesScope saved(model.lm->parameters());
      model.ForwardAndBackward();
    });
  }

  // Steps of one variant.
  void RunOne(const std::string& variant) {
    const bool with_ledger = variant == "with";
    MemoryLedger ledger;
    const LedgerScope mine(ledger);
    std::optional<WithoutLedger> without;
    if (!with_ledger) without.emplace();
    const Model model;
    const auto ms = InterleavedMs({[&] {
                                    std::optional<SavedBytesScope> saved;
                                    if (with_ledger)
                                      saved.emplace(model.lm->parameters());
                                    model.ForwardAndBackward();
                                  }},
                                  turns_, Watch(progress_, variant, turns_));
    Times times{"forward and backward", {}, {}};
    (with_ledger ? times.with_us : times.without_us) = Scaled(ms[0], 1e3);
    rows_.push_back(AsJson(times));
    progress_.Clear();
    fmt::print(
        "forward and backward {} the ledger: best {:.2f} ms, median\n"
        "{:.2f} ms of {} turns\n",
        variant, Best(ms[0]), Median(ms[0]), turns_);
  }

  std::string Json() const { return TextOf(ResultOf(setting_, rows_)); }

 private:
  // `count`: how many of them a call makes.
  void Compare(const std::string& what, const std::string& unit, double count,
               const std::function<void()>& plain,
               const std::function<void()>& counted) {
    const auto uncounted = [&plain] {
      const WithoutLedger without;
      plain();
    };
    const auto ms = InterleavedMs({uncounted, counted}, turns_,
                                  Watch(progress_, what, turns_));
    const Times times{what, Scaled(ms[0], 1e3 / count),
                      Scaled(ms[1], 1e3 / count)};
    rows_.push_back(AsJson(times));
    progress_.Clear();
    fmt::print("{}", LineOf(times, unit, unit == "ns" ? 1e3 : 1e-3));
    std::fflush(stdout);
  }

  const int turns_;
  const Setting& setting_;
  Progress progress_;
  ordered_json rows_ = ordered_json::array();
};

int RunBench(int turns, const std::string& only, const std::string& path) {
  OutputFile json("--json", path);
  Setting setting = SettingHere("bench_ledger");
  setting.versions.emplace_back("libtorch", TORCH_VERSION);
  setting.versions.emplace_back("BLAS", Describe(DetectBlas()));
  Bench bench(turns, setting);
  RunAndWrite([&] { only.empty() ? bench.Run() : bench.RunOne(only); }, setting,
              json, [&] { return bench.Json(); });
  return 0;
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  trainsys::ReexecWithFastBlas(argv);
  CLI::App app(trainsys::kDescription, "bench_ledger");
  int turns = 40;
  app.add_option("--turns", turns, "of each variant")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  std::string only;
  app.add_option("--only", only, "steps of one variant: with or without")
      ->check(CLI::IsMember({"with", "without"}));
  std::string json;
  app.add_option("--json", json, "write all figures to this file");
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [turns, &only, &json] {
    trainsys::UseOneBlasThread();
    return trainsys::RunBench(turns, only, json);
  });
}
