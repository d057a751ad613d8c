#include <fmt/core.h>

#include <sstream>

#include "tools/collective_bench/peers.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

// The text of tools/mpi_peer.c.
constexpr char kSource[] =
#include "tools/collective_bench/mpi_peer_source.inc"
    ;

constexpr int kCompileSeconds = 60;
constexpr int kRunSeconds = 300;

// Open MPI refuses root and more ranks than cores unless told otherwise.
std::string Mpirun(bool is_open_mpi) {
  if (!is_open_mpi) return "mpirun";
  return "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
         "mpirun --oversubscribe";
}

bool Has(const Case& what) {
  return what.bytes == 0 || what.dtype == collectives::DType::kF32;
}

// Lines "index median"; an MPI may print warnings between them.
void TakeMedians(const std::string& output,
                 std::vector<std::optional<double>>& medians) {
  std::istringstream all(output);
  for (std::string line; std::getline(all, line);) {
    std::istringstream words(line);
    size_t i = 0;
    double us = 0;
    if (words >> i >> us && i < medians.size()) medians[i] = us;
  }
}

}  // namespace

MpiPeer::MpiPeer() {
  const Outcome version = RunShell("mpirun --version", kCompileSeconds);
  const Outcome has_compiler = RunShell("command -v mpicc", kCompileSeconds);
  if (version.code != 0 || has_compiler.code != 0) {
    description_ = "not installed (mpirun and mpicc)";
    return;
  }
  WriteFile(folder_.path() / "mpi_peer.c", kSource);
  const Outcome compiled = RunShell("cd " + Quoted(folder_.path().string()) +
                                        " && mpicc -O2 -o mpi_peer mpi_peer.c",
                                    kCompileSeconds);
  is_there_ = compiled.code == 0;
  description_ = is_there_ ? FirstLineOf(version.output)
                           : "mpicc fails: " + FirstLineOf(compiled.output);
}

PeerTimes MpiPeer::Time(const std::vector<Case>& cases,
                        const Pace& pace) const {
  PeerTimes times;
  times.us.resize(cases.size());
  std::string asked;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!Has(cases[i])) continue;
    asked +=
        fmt::format("{} {} {}\n", i, Name(cases[i].operation), cases[i].bytes);
  }
  const auto list = folder_.path() / "cases";
  WriteFile(list, asked);
  const bool is_open_mpi = description_.find("Open MPI") != std::string::npos;
  const Outcome outcome =
      RunShell(fmt::format("{} -n {} {} {:.3f} {}", Mpirun(is_open_mpi),
                           cases.front().ranks,
                           Quoted((folder_.path() / "mpi_peer").string()),
                           pace.budget_ms, Quoted(list.string())),
               kRunSeconds);
  ThrowIfInterrupted();
  if (outcome.code == 0) {
    TakeMedians(outcome.output, times.us);
  } else {
    times.why_not = fmt::format("MPI: exit code {}: {}", outcome.code,
                                FirstLineOf(outcome.output));
  }
  return times;
}

}  // namespace trainsys
