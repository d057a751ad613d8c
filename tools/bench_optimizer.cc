// How long optimizer steps take beside the memory's floor, torch's AdamW, and
// the sum of a sharded step's parts.
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <fmt/core.h>
#include <torch/optim/adamw.h>
#include <torch/version.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/run_ranks.h"
#include "tools/optimizer_bench/arrays.h"
#include "tools/optimizer_bench/zero_steps.h"
#include "tools/output_file.h"
#include "tools/parse.h"
#include "tools/run_bench.h"
#include "tools/setting.h"
#include "trainsys/measure/interleaved.h"
#include "trainsys/optim/exact_sum.h"
#include "trainsys/optim/sum_of_squares.h"
#include "trainsys/optim/update.h"
#include "trainsys/platform/blas.h"
#include "trainsys/terminal/progress.h"

namespace trainsys {
namespace {

using nlohmann::ordered_json;

constexpr char kDescription[] =
    "Times the fused AdamW beside a loop that only reads and writes what it\n"
    "must, and torch::optim::AdamW; the gradients' norm beside a loop that\n"
    "only reads; and ZeRO-1's step beside its two parts, each alone. All in\n"
    "turn, f32.\n\n"
    "Example: bench_optimizer --turns 41";

struct Flags {
  int64_t elems = 10'000'000;
  int tensors = 60;
  std::vector<int> threads{1, 2};
  std::vector<int> ranks{4};
  int turns = 21;
  std::string json;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--elems", flags.elems, "parameters in all")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32))
      ->capture_default_str();
  app.add_option("--tensors", flags.tensors, "that they are dealt out to")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "for one optimizer")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--ranks", flags.ranks, "for ZeRO-1")
      ->delimiter(',')
      ->check(CLI::Range(1, collectives::kMaxRanks))
      ->capture_default_str();
  app.add_option("--turns", flags.turns, "of each variant")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--json", flags.json, "write all figures to this file");
}

// torch::optim::AdamW over tensors of its own.
class TorchAdamW {
 public:
  explicit TorchAdamW(const Flags& flags) {
    for (const int64_t elems : SizesOf(flags.elems, flags.tensors)) {
      parameters_.push_back(at::randn({elems}).set_requires_grad(true));
      parameters_.back().mutable_grad() = at::randn({elems}).mul_(1e-3);
    }
    optimizer_.emplace(parameters_, torch::optim::AdamWOptions(1e-3));
  }

  void Step(int threads) {
    at::set_num_threads(threads);
    optimizer_->step();
    at::set_num_threads(1);
  }

 private:
  std::vector<at::Tensor> parameters_;
  std::optional<torch::optim::AdamW> optimizer_;
};

// above[turn] / below[turn].
Quartiles Ratios(const std::vector<double>& above,
                 const std::vector<double>& below) {
  return OverTurns(above.size(),
                   [&](size_t turn) { return above[turn] / below[turn]; });
}

// Four digits.
std::string RatioText(double ratio) {
  const int decimals = ratio < 10 ? 3 : ratio < 100 ? 2 : ratio < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", ratio, decimals);
}

std::string RatioText(const Quartiles& q) {
  return RatioText(q.median) + " " + RatioText(q.low) + " " + RatioText(q.high);
}

ordered_json AsJson(const Quartiles& q) {
  return {{"p25", q.low}, {"median", q.median}, {"p75", q.high}};
}

void AddToNorm(const Elements<float>& part) {
  ExactSum sum;
  AddSquares(part.grad, sum);
}

class Bench {
 public:
  // Lifetime: both outlive it.
  Bench(const Flags& flags, const Setting& setting)
      : flags_(flags), setting_(setting), arrays_(flags.elems), torch_(flags) {}

  void Run() {
    PrintHeader();
    for (const int threads : flags_.threads) TimeUpdates(threads);
    Print(fmt::format("\n{:<8}{:>8}{:>8}{:>8}{:>22}\n", "threads", "read",
                      "norm", "GB/s", "norm / read"));
    for (const int threads : flags_.threads) TimeNorm(threads);
    Print(fmt::format("\n{:<8}{:>8}{:>12}{:>8}{:>22}\n", "ranks", "update",
                      "all-gather", "ZeRO-1", "ZeRO-1 / their sum"));
    for (const int ranks : flags_.ranks) TimeZero(ranks);
  }

  std::string Json() const { return TextOf(ResultOf(setting_, rows_)); }

 private:
  void Print(const std::string& text) {
    progress_.Clear();
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  void PrintHeader() {
    Print(fmt::format(
        "AdamW, {} f32 parameters in {} tensors; {} turns\n{}\n"
        "Medians in ms; ratios turn by turn: median and quartiles.\n\n"
        "{:<8}{:>8}{:>8}{:>8}{:>22}{:>22}\n",
        flags_.elems, flags_.tensors, flags_.turns, HeaderText(setting_),
        "threads", "floor", "fused", "torch", "floor / fused",
        "torch / fused"));
  }

  // A row's first fields.
  ordered_json RowOf(const std::string& part, const std::string& kind,
                     int number) const {
    return {{"part", part},
            {kind, number},
            {"elems", flags_.elems},
            {"tensors", flags_.tensors},
            {"turns", flags_.turns}};
  }

  std::vector<std::vector<double>> InTurnMs(
      const std::string& what,
      const std::vector<std::function<void()>>& variants) {
    return InterleavedMs(variants, flags_.turns,
                         Watch(progress_, what, flags_.turns));
  }

  void OnParts(int threads,
               const std::function<void(const Elements<float>&)>& work) {
    OnThreads(threads, flags_.elems, [&](int64_t begin, int64_t end) {
      work(arrays_.Part(begin, end));
    });
  }

  void TimeUpdates(int threads) {
    const auto floor = [&] { OnParts(threads, ReadFourWriteThree); };
    const auto fused = [&] {
      ++step_;
      OnParts(threads, [this](const Elements<float>& part) {
        UpdateElements(AdamWOptions{}, step_, 1, part);
      });
    };
    // Not all three in turn: OpenMP's threads spin for a while after a step of
    // torch's and would take a core from who comes next.
    const std::string what = fmt::format("AdamW, {} threads", threads);
    const auto ms = InTurnMs(what, {floor, fused});
    const auto with_torch =
        InTurnMs(what + ", torch", {fused, [&] { torch_.Step(threads); }});
    const Quartiles floor_ratio = Ratios(ms[0], ms[1]);
    const Quartiles torch_ratio = Ratios(with_torch[1], with_torch[0]);
    ordered_json row = RowOf("update", "threads", threads);
    row["floor_ms"] = Median(ms[0]);
    row["fused_ms"] = Median(ms[1]);
    row["torch_ms"] = Median(with_torch[1]);
    row["floor_over_fused"] = AsJson(floor_ratio);
    row["torch_over_fused"] = AsJson(torch_ratio);
    rows_.push_back(std::move(row));
    Print(fmt::format("{:<8}{:>8.2f}{:>8.2f}{:>8.2f}{:>22}{:>22}\n", threads,
                      Median(ms[0]), Median(ms[1]), Median(with_torch[1]),
                      RatioText(floor_ratio), RatioText(torch_ratio)));
  }

  void TimeNorm(int threads) {
    const auto ms = InTurnMs(fmt::format("norm, {} threads", threads),
                             {[&] { OnParts(threads, ReadOnce); },
                              [&] { OnParts(threads, AddToNorm); }});
    const double GBps =
        4 * static_cast<double>(flags_.elems) / Median(ms[1]) / 1e6;
    const Quartiles ratio = Ratios(ms[1], ms[0]);
    ordered_json row = RowOf("norm", "threads", threads);
    row["read_ms"] = Median(ms[0]);
    row["norm_ms"] = Median(ms[1]);
    row["norm_GBps"] = GBps;
    row["norm_over_read"] = AsJson(ratio);
    rows_.push_back(std::move(row));
    Print(fmt::format("{:<8}{:>8.2f}{:>8.2f}{:>8.1f}{:>22}\n", threads,
                      Median(ms[0]), Median(ms[1]), GBps, RatioText(ratio)));
  }

  void TimeZero(int ranks) {
    const ZeroTimes ms = TimeZeroSteps(
        {.elems = flags_.elems, .tensors = flags_.tensors, .ranks = ranks},
        flags_.turns, progress_);
    std::vector<double> sum;
    for (size_t turn = 0; turn < ms.step.size(); ++turn) {
      sum.push_back(ms.update[turn] + ms.gather[turn]);
    }
    const Quartiles ratio = Ratios(ms.step, sum);
    ordered_json row = RowOf("zero1", "ranks", ranks);
    row["update_ms"] = Median(ms.update);
    row["all_gather_ms"] = Median(ms.gather);
    row["step_ms"] = Median(ms.step);
    row["step_over_sum"] = AsJson(ratio);
    rows_.push_back(std::move(row));
    Print(fmt::format("{:<8}{:>8.2f}{:>12.2f}{:>8.2f}{:>22}\n", ranks,
                      Median(ms.update), Median(ms.gather), Median(ms.step),
                      RatioText(ratio)));
  }

  const Flags& flags_;
  const Setting& setting_;
  const Arrays arrays_;
  TorchAdamW torch_;
  Progress progress_;
  int64_t step_ = 0;
  ordered_json rows_ = ordered_json::array();
};

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  trainsys::ReexecWithFastBlas(argv);
  CLI::App app(trainsys::kDescription, "bench_optimizer");
  trainsys::Flags flags;
  trainsys::AddFlags(app, flags);
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&] {
    trainsys::UseOneBlasThread();
    trainsys::OutputFile json("--json", flags.json);
    trainsys::Setting setting =
        trainsys::SettingHere("bench_optimizer", "threads");
    setting.versions.emplace_back("libtorch", TORCH_VERSION);
    setting.versions.emplace_back("BLAS",
                                  trainsys::Describe(trainsys::DetectBlas()));
    trainsys::Bench bench(flags, setting);
    trainsys::RunAndWrite([&] { bench.Run(); }, setting, json,
                          [&] { return bench.Json(); });
    return 0;
  });
}
