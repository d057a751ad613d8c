// How long a training step takes beside one that never communicates, and
// beside torch's DistributedDataParallel.
#include <fmt/core.h>
#include <torch/version.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/run_ranks.h"
#include "tools/output_file.h"
#include "tools/parse.h"
#include "tools/run_bench.h"
#include "tools/setting.h"
#include "tools/step_bench/bookkeeping.h"
#include "tools/step_bench/report.h"
#include "tools/step_bench/rungs.h"
#include "tools/step_bench/torch_ranks.h"
#include "trainsys/platform/blas.h"
#include "trainsys/terminal/interrupt.h"
#include "trainsys/terminal/progress.h"

namespace trainsys {
namespace {

constexpr char kDescription[] =
    "Times forward, backward and the averaging of gradients, without an\n"
    "optimizer, with ranks as threads: without collectives (the ideal), with\n"
    "SimpleDDP, AsyncDDP and BucketedDDP, and with torch's\n"
    "DistributedDataParallel over Gloo where a python3 has it, all in turn.\n\n"
    "Example: bench_step --quick --ranks 2";

struct Flags {
  bool is_quick = false;
  std::vector<std::string> models;
  std::vector<int> ranks{2, 4};
  std::optional<int> turns;
  int64_t bucket_kb = 25 << 10;
  bool has_no_torch = false;
  std::string python;
  std::string json;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_flag("--quick", flags.is_quick,
               "the default model, 5 turns; under a minute");
  app.add_option("--models", flags.models,
                 "default (918,656 parameters), 10m (9,785,472), tiny (for "
                 "tests); default: default,10m")
      ->delimiter(',');
  app.add_option("--ranks", flags.ranks, "numbers of ranks")
      ->delimiter(',')
      ->check(CLI::Range(1, collectives::kMaxRanks))
      ->capture_default_str();
  app.add_option("--turns", flags.turns, "of each variant (default: 11)")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--bucket-kb", flags.bucket_kb,
                 "most KiB of a bucket, torch's too; its first and ours have "
                 "at most 1024")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app.add_flag("--no-torch", flags.has_no_torch, "without torch's DDP");
  app.add_option("--python", flags.python,
                 "the python3 to take torch from (default: the first in PATH "
                 "or /usr/bin that has it)");
  app.add_option("--json", flags.json, "write all figures to this file");
}

class Bench {
 public:
  // Lifetime: both outlive it.
  Bench(const Flags& flags, Setting& setting)
      : flags_(flags),
        turns_(flags.turns.value_or(flags.is_quick ? 5 : 11)),
        setting_(setting) {
    for (const std::string& name : Models()) {
      cases_.push_back(CaseOf(name));
      cases_.back().bucket_bytes = flags.bucket_kb << 10;
    }
    python_ = flags.has_no_torch ? TorchPython{"", "not asked for"}
                                 : FindTorchPython(flags.python);
    setting_.versions.emplace_back("libtorch", TORCH_VERSION);
    setting_.versions.emplace_back("BLAS", Describe(DetectBlas()));
  }

  void Run() {
    PrintHeader();
    setting_.versions.emplace_back("python", python_.description);
    for (StepCase what : cases_) {
      for (const int ranks : flags_.ranks) {
        what.ranks = ranks;
        Time(what);
      }
    }
    costs_ = MeasureBookkeeping(cases_.front(), turns_, progress_);
    progress_.Clear();
    fmt::print("{}", BookkeepingText(cases_.front(), *costs_));
    for (const std::string& note : setting_.notes) fmt::print("{}\n", note);
  }

  std::string Json() const { return StepJson(setting_, rows_, costs_); }

 private:
  std::vector<std::string> Models() const {
    if (!flags_.models.empty()) return flags_.models;
    if (flags_.is_quick) return {"default"};
    return {"default", "10m"};
  }

  void PrintHeader() const {
    const StepCase& first = cases_.front();
    fmt::print(
        "training step, ranks as threads, one thread a rank; {} rows x {} "
        "tokens;\n{} turns\n{}DistributedDataParallel: {}\n",
        first.rows, first.model.context, turns_, HeaderText(setting_),
        python_.description);
    for (const StepCase& what : cases_) {
      fmt::print("model {}: {} parameters\n", what.name,
                 ParameterCount(what.model));
    }
    fmt::print("{}{}", StepLegendText(), StepColumnsText());
    std::fflush(stdout);
  }

  void Time(const StepCase& what) {
    StepTimes times = TimeSteps(what, turns_, PeerOf(what), progress_);
    torch_.reset();
    progress_.Clear();
    if (!times[Rung::kIdeal].empty()) {
      rows_.push_back({what, std::move(times)});
      fmt::print("{}", StepRowText(rows_.back()));
      std::fflush(stdout);
    }
    ThrowIfInterrupted();
  }

  PeerStep PeerOf(const StepCase& what) {
    if (python_.program.empty()) return {};
    const auto note = [this, what](const std::exception& error) {
      setting_.notes.push_back(fmt::format("torch, {}, {} ranks: {}", what.name,
                                           what.ranks, error.what()));
    };
    try {
      torch_ = std::make_unique<TorchRanks>(python_, what);
    } catch (const std::exception& error) {
      note(error);
      return {};
    }
    return [this, note]() -> std::optional<double> {
      try {
        return torch_->StepMs();
      } catch (const std::exception& error) {
        note(error);
        torch_.reset();  // whatever it still does would take our cores
        return std::nullopt;
      }
    };
  }

  const Flags& flags_;
  const int turns_;
  Setting& setting_;
  Progress progress_;
  std::vector<StepCase> cases_;
  TorchPython python_;
  std::unique_ptr<TorchRanks> torch_;  // of the case that is being timed
  std::vector<StepRow> rows_;
  std::optional<Bookkeeping> costs_;
};

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  trainsys::ReexecWithFastBlas(argv);
  CLI::App app(trainsys::kDescription, "bench_step");
  trainsys::Flags flags;
  trainsys::AddFlags(app, flags);
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&] {
    trainsys::UseOneBlasThread();
    trainsys::OutputFile json("--json", flags.json);
    trainsys::Setting setting = trainsys::SettingHere("bench_step", "threads");
    trainsys::Bench bench(flags, setting);
    trainsys::RunAndWrite([&] { bench.Run(); }, setting, json,
                          [&] { return bench.Json(); });
    return 0;
  });
}
