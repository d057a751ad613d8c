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
#include <optional>
#include <string>
#include <vector>

#include "collectives/run_ranks.h"
#include "tools/collective_bench/rows.h"
#include "trainsys/measure/interleaved.h"
#include "tools/optimizer_bench/arrays.h"
#include "tools/optimizer_bench/zero_steps.h"
#include "tools/parse.h"
#include "trainsys/optim/exact_sum.h"
#include "trainsys/optim/sum_of_squares.h"
#include "trainsys/optim/update.h"
#include "trainsys/platform/blas.h"

namespace trainsys {
namespace {

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
std::string RatioText(const std::vector<double>& above,
                      const std::vector<double>& below) {
  const Quartiles q = OverTurns(
      above.size(), [&](size_t turn) { return above[turn] / below[turn]; });
  return fmt::format("{:.3f} {:.3f} {:.3f}", q.median, q.low, q.high);
}

void AddToNorm(const Elements<float>& part) {
  ExactSum sum;
  AddSquares(part.grad, sum);
}

class Bench {
 public:
  explicit Bench(const Flags& flags)
      : flags_(flags), arrays_(flags.elems), torch_(flags) {}

  void Run() {
    PrintHeader();
    for (const int threads : flags_.threads) TimeUpdates(threads);
    fmt::print("\n{:<9}{:>9}{:>9}{:>9}{:>24}\n", "threads", "read", "norm",
               "GB/s", "norm / read");
    for (const int threads : flags_.threads) TimeNorm(threads);
    fmt::print("\n{:<9}{:>9}{:>12}{:>9}{:>24}\n", "ranks", "update",
               "all-gather", "ZeRO-1", "ZeRO-1 / their sum");
    for (const int ranks : flags_.ranks) TimeZero(ranks);
  }

 private:
  void PrintHeader() const {
    const Setting setting = SettingHere("threads");
    fmt::print(
        "AdamW, {} f32 parameters in {} tensors; {} turns\n"
        "{}, {} cores; {}\nlibtorch {}; {}\n\n"
        "Medians in ms; ratios turn by turn: median and quartiles.\n\n"
        "{:<9}{:>9}{:>9}{:>9}{:>24}{:>24}\n",
        flags_.elems, flags_.tensors, flags_.turns, setting.machine,
        setting.cores, setting.date, TORCH_VERSION, Describe(DetectBlas()),
        "threads", "floor", "fused", "torch", "floor / fused", "torch / fused");
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
    const auto ms = InterleavedMs({floor, fused}, flags_.turns);
    const auto with_torch =
        InterleavedMs({fused, [&] { torch_.Step(threads); }}, flags_.turns);
    fmt::print("{:<9}{:>9.2f}{:>9.2f}{:>9.2f}{:>24}{:>24}\n", threads,
               Median(ms[0]), Median(ms[1]), Median(with_torch[1]),
               RatioText(ms[0], ms[1]),
               RatioText(with_torch[1], with_torch[0]));
    std::fflush(stdout);
  }

  void TimeNorm(int threads) {
    const auto ms = InterleavedMs({[&] { OnParts(threads, ReadOnce); },
                                   [&] { OnParts(threads, AddToNorm); }},
                                  flags_.turns);
    const double bytes = 4 * static_cast<double>(flags_.elems);
    fmt::print("{:<9}{:>9.2f}{:>9.2f}{:>9.1f}{:>24}\n", threads, Median(ms[0]),
               Median(ms[1]), bytes / Median(ms[1]) / 1e6,
               RatioText(ms[1], ms[0]));
    std::fflush(stdout);
  }

  void TimeZero(int ranks) {
    const ZeroTimes ms = TimeZeroSteps(
        {.elems = flags_.elems, .tensors = flags_.tensors, .ranks = ranks},
        flags_.turns);
    std::vector<double> sum;
    for (size_t turn = 0; turn < ms.step.size(); ++turn) {
      sum.push_back(ms.update[turn] + ms.gather[turn]);
    }
    fmt::print("{:<9}{:>9.2f}{:>12.2f}{:>9.2f}{:>24}\n", ranks,
               Median(ms.update), Median(ms.gather), Median(ms.step),
               RatioText(ms.step, sum));
    std::fflush(stdout);
  }

  const Flags& flags_;
  const Arrays arrays_;
  TorchAdamW torch_;
  int64_t step_ = 0;
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
    trainsys::Bench(flags).Run();
    return 0;
  });
}
