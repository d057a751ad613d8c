#include "tools/backend.h"

#include <filesystem>
#include <vector>

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
  if (backend == "nccl") {
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
  return backend;
}

}  // namespace

void AddBackendFlags(CLI::App& app, BackendFlags& flags) {
  app.add_option("--backend", flags.backend,
                 "ranks as threads, or as processes over gloo or nccl "
                 "(default: threads; under torchrun, mpirun or srun gloo)")
      ->check(CLI::IsMember({"threads", "gloo", "nccl"}));
  app.add_flag("--gloo-native", flags.is_native,
               "Gloo's own all-reduce: faster, but bits may differ");
}

Placement Place(const BackendFlags& flags, const Lookup& lookup) {
  Placement placement;
  const std::optional<World> world = WorldFromEnvironment(lookup);
  placement.backend = ChooseBackend(flags, world);
  placement.is_native = flags.is_native;
  if (placement.backend == "gloo") placement.world = world;
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
  return placement.is_native
             ? "processes over Gloo's own all-reduce (bits may differ)"
             : "processes over Gloo";
}

std::unique_ptr<collectives::RankRunner> MakeRunner(
    const Placement& placement) {
  if (!placement.world) return std::make_unique<collectives::ThreadRunner>();
  collectives::C10dOptions options;
  if (placement.is_native) options.library = collectives::Library::kGloo;
  return std::make_unique<collectives::ProcessRunner>(*placement.world,
                                                      options);
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
