// How long collectives take, beside the floor and beside Gloo and MPI.
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tools/backend.h"
#include "tools/collective_bench/bench.h"
#include "tools/output_file.h"
#include "tools/parse.h"
#include "tools/run_bench.h"
#include "tools/setting.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

constexpr char kDescription[] =
    "Times collectives, with ranks as threads: median, p10 and p90 of the\n"
    "slowest rank, beside the floor (the least memory traffic on as many\n"
    "threads), Gloo between threads and between processes, and MPI where\n"
    "mpicc and mpirun are installed. With --backend gloo it times that.\n\n"
    "Example: bench_collectives --quick --only all-reduce --ranks 2,4";

struct Flags {
  BackendFlags backend;
  bool is_quick = false;
  bool has_no_peers = false;
  bool has_no_table = false;
  std::vector<std::string> operations, bytes, dtypes;
  std::vector<int> ranks;
  std::string calls = "both";
  std::optional<double> budget_ms;
  std::string json;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_flag("--quick", flags.is_quick,
               "all-reduce and barrier in a few sizes; under a minute");
  app.add_option("--only", flags.operations,
                 "operations: all-reduce, reduce-scatter, all-gather, "
                 "broadcast, barrier")
      ->delimiter(',');
  app.add_option("--ranks", flags.ranks, "numbers of ranks")
      ->delimiter(',')
      ->check(CLI::Range(1, collectives::kMaxRanks));
  app.add_option("--bytes", flags.bytes,
                 "sizes of the whole buffer, as 4, 16KiB or 64Mi")
      ->delimiter(',');
  app.add_option("--dtypes", flags.dtypes, "f32, bf16")->delimiter(',');
  app.add_option("--calls", flags.calls, "which calls to time")
      ->check(CLI::IsMember({"blocking", "async", "both"}))
      ->capture_default_str();
  app.add_option("--budget-ms", flags.budget_ms,
                 "milliseconds for each case of each backend, but at least "
                 "one turn (default: 150, with --quick 100)")
      ->check(CLI::Range(0.0, 1e6));
  app.add_flag("--no-peers", flags.has_no_peers, "without Gloo and MPI");
  app.add_flag("--no-table", flags.has_no_table, "no text, for --json");
  app.add_option("--json", flags.json, "write all figures to this file");
  AddBackendFlags(app, flags.backend);
}

template <typename T, typename Parse>
void Override(std::vector<T>& values, const std::vector<std::string>& texts,
              const Parse& parse) {
  if (texts.empty()) return;
  values.clear();
  for (const std::string& text : texts) values.push_back(parse(text));
}

Selection Select(const Flags& flags) {
  Selection selection = flags.is_quick ? QuickTable() : WholeTable();
  Override(selection.operations, flags.operations, ParseOperation);
  Override(selection.bytes, flags.bytes, ParseBytes);
  Override(selection.dtypes, flags.dtypes, ParseDType);
  if (!flags.ranks.empty()) selection.ranks = flags.ranks;
  if (!flags.bytes.empty()) selection.most_bytes = Selection().most_bytes;
  if (flags.calls != "both") selection.is_async = {flags.calls == "async"};
  CasesOf(selection, 1);  // refuses halves of elements
  return selection;
}

int MostOf(const std::vector<int>& ranks) {
  return *std::max_element(ranks.begin(), ranks.end());
}

// Under a launcher its ranks, unless the user names fewer; processes are at
// most as many as the peers get, unless the user names more.
void FitRanks(const Placement& placement, const Flags& flags,
              Selection& selection) {
  constexpr int kMaxProcesses = 8;
  if (!flags.ranks.empty()) return RequireRanks(placement, MostOf(flags.ranks));
  if (placement.world) {
    selection.ranks = {placement.world->ranks};
  } else if (placement.MustLaunch()) {
    std::erase_if(selection.ranks, [](int n) { return n > kMaxProcesses; });
  }
}

int RunBench(const Flags& flags, char** argv) {
  const Placement placement = Place(flags.backend, ::getenv);
  if (placement.backend == "nccl") {
    throw InvalidArgument(
        "--backend nccl, but data is in host memory here; expected threads or "
        "gloo");
  }
  BenchOptions options;
  options.selection = Select(flags);
  FitRanks(placement, flags, options.selection);
  OutputFile json("--json", placement.HasFirstRank() ? flags.json : "");
  if (placement.MustLaunch()) {
    return Launch(MostOf(options.selection.ranks), argv);
  }
  options.pace.budget_ms = flags.budget_ms.value_or(flags.is_quick ? 100 : 150);
  options.is_threads = placement.backend == "threads";
  options.has_peers = options.is_threads && !flags.has_no_peers;
  options.has_table = !flags.has_no_table;
  Setting setting = SettingHere("bench_collectives", Describe(placement));
  setting.versions.emplace_back("libtorch", TORCH_VERSION);
  const auto runner = MakeRunner(placement);
  Bench bench(*runner, options, setting);
  RunAndWrite([&] { bench.Run(); }, setting, json,
              [&] { return bench.Json(); });
  return 0;
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  CLI::App app(trainsys::kDescription, "bench_collectives");
  trainsys::Flags flags;
  trainsys::AddFlags(app, flags);
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&] { return trainsys::RunBench(flags, argv); });
}
