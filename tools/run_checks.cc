// Four checks of data parallelism, sharding and recomputation.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "collectives/errors.h"
#include "examples/exercise/bucketed_ddp.h"
#include "examples/exercise/checkpoint.h"
#include "examples/exercise/zero1.h"
#include "tools/backend.h"
#include "tools/output_file.h"
#include "tools/parse.h"
#include "trainsys/checks/checks.h"
#include "trainsys/checks/parts.h"
#include "trainsys/measure/agreed_interrupt.h"
#include "trainsys/platform/blas.h"
#include "trainsys/terminal/interrupt.h"
#include "trainsys/terminal/progress.h"
#include "trainsys/terminal/terminal.h"

namespace trainsys {
namespace {

using collectives::RankRunner;
using nlohmann::json;

constexpr char kDescription[] =
    "Checks on small models that BucketedDDP, ZeRO-1 and recomputation, each\n"
    "and together, train as one rank does. Exit code 1 if a check fails.\n\n"
    "Example: run_checks --break no-average   (check 1 must then FAIL)\n"
    "         run_checks --mine   (yours, as docs/tutorial.md tells)";

constexpr size_t kWidth = 80;

// Somebody waits at the terminal for a part that may hang.
constexpr std::chrono::seconds kTimeoutOfMine{20};

struct Flags {
  std::string fault;
  bool is_mine = false;
  std::string json;
  BackendFlags backend;
};

Parts MyParts() {
  return {[](torch::nn::Module& module, collectives::Communicator& comm,
             int64_t bucket_bytes) {
            return std::make_unique<exercise::BucketedDDP>(module, comm,
                                                           bucket_bytes);
          },
          [](std::vector<at::Tensor> parameters,
             collectives::Communicator& comm, const AdamWOptions& options) {
            return std::make_unique<exercise::ZeRO1>(std::move(parameters),
                                                     comm, options);
          },
          exercise::Checkpoint};
}

// Broken between words, each line after `indent` spaces.
std::string Wrapped(const std::string& text, size_t indent) {
  const size_t width = kWidth - indent;
  std::string lines;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.size();
    if (end - begin > width) {
      const size_t space = text.rfind(' ', begin + width);
      end =
          space == std::string::npos || space <= begin ? begin + width : space;
    }
    lines += std::string(indent, ' ') + text.substr(begin, end - begin) + "\n";
    begin = end + (end < text.size() && text[end] == ' ' ? 1 : 0);
  }
  return lines;
}

void Print(size_t number, const CheckResult& result) {
  std::string text = fmt::format(
      "{} {} {}\n", result.has_passed ? "PASS" : "FAIL", number, result.name);
  for (const std::string& line : result.lines) text += Wrapped(line, 5);
  Put(Paint(text, stdout), stdout);
}

// Counts and bytes as whole numbers.
json AsJson(const std::map<std::string, double>& figures) {
  json all = json::object();
  for (const auto& [name, value] : figures) {
    const auto whole = static_cast<int64_t>(value);
    if (static_cast<double>(whole) == value) {
      all[name] = whole;
    } else {
      all[name] = value;
    }
  }
  return all;
}

json AsJson(const std::vector<CheckResult>& results) {
  json all = json::array();
  for (const CheckResult& result : results) {
    all.push_back({{"check", all.size() + 1},
                   {"name", result.name},
                   {"passed", result.has_passed},
                   {"figures", AsJson(result.figures)},
                   {"lines", result.lines}});
  }
  return all;
}

// Ranks agree on it where they can: one that went alone would leave the others
// waiting. Accelerators' collectives take no host memory.
void StopIfAsked(const CheckOptions& options, RankRunner& runner) {
  if (options.device == collectives::kHostMemory) {
    ThrowIfAnyInterrupted(runner, kCheckRanks);
  } else {
    ThrowIfInterrupted();
  }
}

// In all but rank 0's process nothing is shown.
void RunAll(const CheckOptions& options, RankRunner& runner,
            std::vector<CheckResult>& results) {
  Progress progress;
  for (const Check& check : kChecks) {
    StopIfAsked(options, runner);
    if (runner.HasFirstRank()) {
      progress.Show("checks", std::ssize(results), std::ssize(kChecks),
                    check.name);
    }
    CheckResult result = RunCheck(check, options, runner);
    // Of ranks that are processes some may have been interrupted, and gone.
    if (!result.has_passed) ThrowIfInterrupted();
    progress.Clear();
    results.push_back(std::move(result));
    if (runner.HasFirstRank()) Print(results.size(), results.back());
  }
}

std::vector<CheckResult> RunAndWrite(const CheckOptions& options,
                                     RankRunner& runner,
                                     const std::string& json_path) {
  OutputFile file("--json", runner.HasFirstRank() ? json_path : "");
  std::vector<CheckResult> results;
  const auto write = [&](bool is_interrupted) {
    const json all = {{"interrupted", is_interrupted},
                      {"checks", AsJson(results)}};
    file.Write(all.dump(2) + "\n");
  };
  try {
    RunAll(options, runner, results);
  } catch (const Interrupted&) {
    write(true);
    throw;
  }
  write(false);
  return results;
}

int RunChecks(const CheckOptions& options, RankRunner& runner,
              const std::string& json_path) {
  const std::vector<CheckResult> results =
      RunAndWrite(options, runner, json_path);
  const auto num_passed = std::ranges::count_if(
      results, [](const CheckResult& result) { return result.has_passed; });
  if (runner.HasFirstRank()) {
    Put(fmt::format("{} / {} checks passed\n", num_passed, results.size()),
        stdout);
  }
  return num_passed == std::ssize(results) ? 0 : kExitFailed;
}

int RunChecks(const Flags& flags, char** argv) {
  const Placement placement = Place(flags.backend, ::getenv);
  RequireRanks(placement, kCheckRanks);
  CheckOptions options(FaultNamed(flags.fault).value_or(Fault::kNone));
  if (flags.is_mine && options.fault == Fault::kParamsSaved) {
    throw collectives::InvalidArgument(
        "--break params-saved breaks our Checkpoint only; leave out --mine");
  }
  if (placement.MustLaunch()) {
    OutputFile("--json", flags.json);  // refused before anything starts
    return Launch(kCheckRanks, argv);
  }
  const Parts mine = MyParts();
  if (flags.is_mine) {
    options.mine = &mine;
    options.timeout = kTimeoutOfMine;
  }
  options.device = placement.device;
  options.has_rank_order = placement.HasRankOrder();
  return RunChecks(options, *MakeRunner(placement), flags.json);
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  trainsys::ReexecWithFastBlas(argv);
  CLI::App app(trainsys::kDescription, "run_checks");
  trainsys::Flags flags;
  app.add_option("--break", flags.fault, "break one thing on purpose")
      ->check(CLI::IsMember(trainsys::FaultNames()));
  app.add_flag("--mine", flags.is_mine,
               "check what stands in examples/exercise instead of ours");
  app.add_option("--json", flags.json, "write all figures to this file");
  trainsys::AddBackendFlags(app, flags.backend);
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&] {
    trainsys::UseOneBlasThread();
    return trainsys::RunChecks(flags, argv);
  });
}
