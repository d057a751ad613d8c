#include "tools/backend.h"

#include <ATen/Context.h>
#include <c10/util/Logging.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "collectives/c10d/library_transport.h"
#include "collectives/c10d/process_runner.h"
#include "collectives/c10d/store_server.h"
#include "collectives/errors.h"
#include "collectives/shm/run_ranks.h"
#include "trainsys/launch/processes.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using collectives::World;

std::string ChooseBackend(const BackendFlags& flags,
                          const std::optional<World>& world) {
  const std::string backend =
      flags.backend.value_or(world ? "gloo" : "threads");
  if (backend == "nccl" && !HasLibrary(collectives::Library::kNccl)) {
    throw InvalidArgument(
        "this libtorch has no NCCL, which --backend nccl needs; use one that "
        "was built with it, or --backend gloo");
  }
  if (backend == "threads" && world && world->ranks > 1) {
    throw InvalidArgument(
        "--backend threads, but a launcher started this process as rank " +
        std::to_string(world->rank) + " of " + std::to_string(world->ranks) +
        "; use --backend gloo, or start it without the launcher");
  }
  if (flags.is_native && backend != "gloo") {
    throw InvalidArgument("--gloo-native with --backend " + backend +
                          ", expected --backend gloo");
  }
  if (flags.is_unmatched && backend == "threads") {
    throw InvalidArgument(
        "--no-matching with --backend threads, which always matches; expected "
        "--backend gloo");
  }
  return backend;
}

// libtorch's own lines, some with a stack trace, would stand between ours. What
// goes wrong comes as an exception.
void SilenceLibtorchLog() {
  constexpr int kFatalOnly = 3;
  FLAGS_caffe2_log_level = kFatalOnly;
#ifdef C10_USE_GLOG
  FLAGS_minloglevel = kFatalOnly;
#endif
}

// NCCL wants one accelerator for each rank.
int DeviceOf(const World& world) {
  const auto devices = static_cast<int>(at::getNumGPUs());
  if (world.local_rank >= devices) {
    throw InvalidArgument(
        "rank " + std::to_string(world.rank) + " is number " +
        std::to_string(world.local_rank) + " on this host, which has " +
        std::to_string(devices) + " GPUs; NCCL needs one for each rank");
  }
  return world.local_rank;
}

std::optional<std::chrono::nanoseconds> TimeoutOf(const BackendFlags& flags) {
  constexpr double kLongest_s = 1e9;
  if (!flags.timeout_s) return std::nullopt;
  if (!(*flags.timeout_s >= 1e-3 && *flags.timeout_s <= kLongest_s)) {
    throw InvalidArgument("timeout-s is " + std::to_string(*flags.timeout_s) +
                          ", expected 0.001 to 1e9 seconds");
  }
  return std::chrono::nanoseconds(static_cast<int64_t>(*flags.timeout_s * 1e9));
}

// Runs everything with a timeout of the user's choice.
class WithTimeout final : public collectives::RankRunner {
 public:
  WithTimeout(std::unique_ptr<collectives::RankRunner> runner,
              std::chrono::nanoseconds timeout)
      : runner_(std::move(runner)), timeout_(timeout) {}

  std::vector<collectives::Recorder> Run(
      const collectives::RunRanksOptions& options,
      const collectives::RankFunction& fn) override {
    collectives::RunRanksOptions own = options;
    own.timeout = timeout_;
    return runner_->Run(own, fn);
  }
  bool HasFirstRank() const override { return runner_->HasFirstRank(); }

 private:
  std::unique_ptr<collectives::RankRunner> runner_;
  const std::chrono::nanoseconds timeout_;
};

std::unique_ptr<collectives::RankRunner> RunnerAt(const Placement& placement) {
  if (!placement.world) return std::make_unique<collectives::ThreadRunner>();
  collectives::C10dOptions options;
  if (placement.is_native) options.library = collectives::Library::kGloo;
  if (placement.backend == "nccl") {
    options.library = collectives::Library::kNccl;
  }
  options.is_matching = !placement.is_unmatched;
  options.host = placement.host;
  return std::make_unique<collectives::ProcessRunner>(*placement.world,
                                                      options);
}

}  // namespace

void AddBackendFlags(CLI::App& app, BackendFlags& flags) {
  app.add_option("--backend", flags.backend,
                 "ranks as threads, or as processes over gloo or nccl "
                 "(default: threads; under torchrun, mpirun or srun gloo)")
      ->check(CLI::IsMember({"threads", "gloo", "nccl"}));
  app.add_flag("--gloo-native", flags.is_native,
               "Gloo's own all-reduce: another order of additions, so other "
               "bits");
  app.add_flag("--no-matching", flags.is_unmatched,
               "do not compare the ranks' calls before data moves");
  app.add_option("--host", flags.host,
                 "address by which other hosts reach this one (default: the "
                 "one that it reaches MASTER_ADDR from)");
  app.add_option("--timeout-s", flags.timeout_s,
                 "seconds that a collective waits for its peers (default: the "
                 "tool's)");
}

Placement Place(const BackendFlags& flags, const Lookup& lookup) {
  SilenceLibtorchLog();
  Placement placement;
  const std::optional<World> world = WorldFromEnvironment(lookup);
  placement.backend = ChooseBackend(flags, world);
  placement.is_native = flags.is_native;
  placement.is_unmatched = flags.is_unmatched;
  placement.timeout = TimeoutOf(flags);
  placement.host = flags.host;
  if (placement.backend != "threads") placement.world = world;
  if (placement.backend == "nccl" && world) {
    placement.device = DeviceOf(*world);
  }
  return placement;
}

int ChooseRanks(const Placement& placement, std::optional<int> asked,
                int otherwise) {
  if (!placement.world) return asked.value_or(otherwise);
  const int ranks = placement.world->ranks;
  if (asked && *asked != ranks) {
    throw InvalidArgument("--ranks is " + std::to_string(*asked) +
                          ", but the launcher started " +
                          std::to_string(ranks) +
                          " processes; leave --ranks out, or start as many");
  }
  return ranks;
}

void RequireRanks(const Placement& placement, int needed) {
  if (!placement.world || placement.world->ranks >= needed) return;
  throw InvalidArgument("needs " + std::to_string(needed) +
                        " processes, but the launcher started " +
                        std::to_string(placement.world->ranks));
}

std::string Describe(const Placement& placement) {
  if (placement.backend == "threads") return "threads";
  if (placement.backend == "nccl") return "processes over NCCL";
  return placement.is_native
             ? "processes over Gloo's own all-reduce (bits may differ)"
             : "processes over Gloo";
}

std::unique_ptr<collectives::RankRunner> MakeRunner(
    const Placement& placement) {
  auto runner = RunnerAt(placement);
  if (!placement.timeout) return runner;
  return std::make_unique<WithTimeout>(std::move(runner), *placement.timeout);
}

int Launch(int ranks, char** argv) {
  const collectives::StoreServer store;
  ProcessesOptions options;
  options.ranks = ranks;
  options.address = "127.0.0.1";
  options.port = store.port();
  options.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  for (char** arg = argv + 1; *arg; ++arg) options.command.emplace_back(*arg);
  return RunProcesses(options);
}

}  // namespace trainsys
