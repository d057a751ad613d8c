// Four checks of data parallelism, sharding and recomputation, one line each.
#include <fmt/core.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "tools/backend.h"
#include "tools/parse.h"
#include "trainsys/checks/checks.h"
#include "trainsys/platform/blas.h"

namespace trainsys {
namespace {

using collectives::RankRunner;

constexpr char kDescription[] =
    "Checks on small models that BucketedDDP, ZeRO-1 and recomputation, each\n"
    "and together, train as one rank does. Exit code 1 if a check fails.\n\n"
    "Example: run_checks --break no-average   (check 1 must then FAIL)";

using Check = std::function<CheckResult(const CheckOptions&, RankRunner&)>;

CheckResult RunGuarded(const Check& check, const std::string& name,
                       const CheckOptions& options, RankRunner& runner) {
  try {
    return check(options, runner);
  } catch (const std::exception& error) {
    return {name, false, FirstLine(error.what())};
  }
}

void Print(size_t number, const CheckResult& result) {
  fmt::print("{} {} {}: {}\n", result.has_passed ? "PASS" : "FAIL", number,
             result.name, result.figures);
  std::fflush(stdout);
}

int RunChecks(const CheckOptions& options, RankRunner& runner) {
  const std::vector<std::pair<std::string, Check>> checks{
      {"BucketedDDP", CheckBucketedDDP},
      {"ZeRO-1", CheckZeRO1},
      {"recomputation", CheckRecomputation},
      {"all three together", CheckAllThree},
  };
  size_t num_passed = 0;
  for (size_t i = 0; i < checks.size(); ++i) {
    const CheckResult result =
        RunGuarded(checks[i].second, checks[i].first, options, runner);
    if (runner.HasFirstRank()) Print(i + 1, result);
    num_passed += result.has_passed ? 1 : 0;
  }
  if (runner.HasFirstRank()) {
    fmt::print("{} / {} checks passed\n", num_passed, checks.size());
  }
  return num_passed == checks.size() ? 0 : kExitFailed;
}

int RunChecks(Fault fault, const BackendFlags& flags, char** argv) {
  const Placement placement = Place(flags, ::getenv);
  RequireRanks(placement, kCheckRanks);
  if (placement.MustLaunch()) return Launch(kCheckRanks, argv);
  CheckOptions options(fault);
  options.device = placement.device;
  options.has_rank_order = placement.HasRankOrder();
  return RunChecks(options, *MakeRunner(placement));
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  trainsys::ReexecWithFastBlas(argv);
  CLI::App app(trainsys::kDescription, "run_checks");
  std::string fault_name;
  app.add_option("--break", fault_name, "break one thing on purpose")
      ->check(CLI::IsMember(trainsys::FaultNames()));
  trainsys::BackendFlags backend;
  trainsys::AddBackendFlags(app, backend);
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&] {
    trainsys::UseOneBlasThread();
    return trainsys::RunChecks(
        trainsys::FaultNamed(fault_name).value_or(trainsys::Fault::kNone),
        backend, argv);
  });
}
