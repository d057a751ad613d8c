#include "tools/step_bench/torch_ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <sstream>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::Error;

constexpr char kScript[] =
#include "tools/step_bench/torch_ddp.inc"
    ;

constexpr std::chrono::seconds kPatience{120};
// So that the processes say themselves what they miss.
constexpr std::chrono::seconds kTheirPatience{100};

constexpr char kVersion[] =
    "import torch, torch.distributed as d; assert d.is_gloo_available(); "
    "print(torch.__version__)";

LineProcess::Deadline DeadlineFromNow() {
  return std::chrono::steady_clock::now() + kPatience;
}

// Result: fn(), whose errors get the rank's name.
template <typename Function>
auto Named(size_t rank, const Function& fn) {
  try {
    return fn();
  } catch (const Error& error) {
    throw Error(fmt::format("rank {}: {}", rank, error.what()));
  }
}

// As torch_ddp.py reads them.
std::vector<std::string> ArgumentsOf(const StepCase& what, int rank) {
  const TransformerConfig& model = what.model;
  std::vector<std::string> words;
  for (const int64_t number :
       {int64_t{rank}, int64_t{what.ranks}, int64_t{kTheirPatience.count()},
        what.bucket_bytes, what.rows, model.vocab, model.context, model.dim,
        model.layers, model.heads, model.ffn}) {
    words.push_back(std::to_string(number));
  }
  return words;
}

}  // namespace

TorchPython FindTorchPython(const std::string& program) {
  std::vector<std::string> candidates{program};
  // The system's, where another stands before it in PATH.
  if (program.empty()) candidates = {"python3", "/usr/bin/python3"};
  for (const std::string& candidate : candidates) {
    const Outcome outcome =
        RunShell(Quoted(candidate) + " -c " + Quoted(kVersion), 60);
    if (outcome.code != 0) continue;
    return {candidate,
            "torch " + FirstLineOf(outcome.output) + " of " + candidate};
  }
  return {"", "not installed: no python3 here imports it"};
}

TorchRanks::TorchRanks(const TorchPython& python, const StepCase& what) {
  const auto script = folder_.path() / "torch_ddp.py";
  WriteFile(script, kScript);
  for (int rank = 0; rank < what.ranks; ++rank) {
    std::vector<std::string> command{python.program, script.string(),
                                     (folder_.path() / "store").string()};
    for (std::string& word : ArgumentsOf(what, rank)) {
      command.push_back(std::move(word));
    }
    ranks_.push_back(std::make_unique<LineProcess>(
        command, folder_.path() / fmt::format("errors{}", rank)));
  }
  const auto deadline = DeadlineFromNow();
  const std::string expected =
      fmt::format("ready {}", ParameterCount(what.model));
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const std::string line = Receive(rank, deadline);
    if (line == expected) continue;
    throw Error(fmt::format("rank {} says '{}', expected '{}' parameters", rank,
                            line, expected));
  }
}

double TorchRanks::StepMs() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    Named(rank, [&] { ranks_[rank]->Send("step"); });
  }
  const auto deadline = DeadlineFromNow();
  int64_t first_ns = std::numeric_limits<int64_t>::max();
  int64_t last_ns = std::numeric_limits<int64_t>::min();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    std::istringstream line(Receive(rank, deadline));
    int64_t begin_ns = 0, end_ns = 0;
    if (!(line >> begin_ns >> end_ns)) {
      throw Error("rank " + std::to_string(rank) + " says '" + line.str() +
                  "', expected two times");
    }
    first_ns = std::min(first_ns, begin_ns);
    last_ns = std::max(last_ns, end_ns);
  }
  return static_cast<double>(last_ns - first_ns) / 1e6;
}

std::string TorchRanks::Receive(size_t rank, LineProcess::Deadline deadline) {
  return Named(rank, [&] { return ranks_[rank]->Receive(deadline); });
}

}  // namespace trainsys
