// Says whether a training job would fit on its devices, before there are any.
#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "collectives/errors.h"
#include "tools/output_file.h"
#include "tools/parse.h"
#include "trainsys/budget/model_config.h"
#include "trainsys/budget/plan_report.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

constexpr char kDescription[] =
    "Plans a training job. `plan memory` answers whether a rank's parameters,\n"
    "gradients, optimizer state and activations fit on a device, what would\n"
    "help if not, and what a step sends. `plan shards` shows how ZeRO would\n"
    "deal out the parameters. Exit code: 0 answered (fits or not), 2 wrong\n"
    "usage.\n\n"
    "Example: plan memory --model llama3-8b --ranks 64 --zero 1 \\\n"
    "             --recompute full --seq 8192 --batch 1 --device-gb 80";

struct Flags {
  PlanRequest request;
  std::string model;
  std::string precision = "bf16";
  std::string optimizer = "adam";
  std::string partition = "flat";
  std::string attention = "flash";
  double device_gb = 80;
  int64_t bucket_mb = 25;
  std::string json;
};

std::string ModelHelp() {
  std::string help = "a config.json, its folder, or one of";
  for (const std::string& name : PresetNames()) help += " " + name;
  return help;
}

// What both subcommands take.
void AddModelFlags(CLI::App& app, Flags& flags) {
  app.add_option("--model", flags.model, ModelHelp())->required();
  app.add_option("--ranks", flags.request.states.ranks, "number of ranks")
      ->capture_default_str();
  app.add_option("--precision", flags.precision,
                 "f32, f64, bf16 (f32 masters), bf16-f32grads, bf16-pure")
      ->capture_default_str();
  app.add_option("--partition", flags.partition,
                 "shards: flat (even), tensor (whole tensors in their order) "
                 "or balanced (whole tensors, the largest first)")
      ->capture_default_str();
  app.add_option("--json", flags.json,
                 "write all figures to this file; -: to stdout, alone");
}

void AddMemoryFlags(CLI::App& app, Flags& flags) {
  PlanRequest& request = flags.request;
  app.add_option("--zero", request.states.zero_stage, "ZeRO stage: 0 to 3")
      ->capture_default_str();
  app.add_option("--recompute", request.recompute,
                 "none, selective, full or every-K")
      ->capture_default_str();
  app.add_option("--seq", request.positions,
                 "positions a row (default: the model's context)")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch", request.rows, "rows a rank and micro-step")
      ->capture_default_str();
  app.add_option("--device-gb", flags.device_gb,
                 "memory of a device, GB (1e9 bytes)")
      ->capture_default_str();
  app.add_option("--optimizer", flags.optimizer, "sgd, momentum, adam")
      ->capture_default_str();
  app.add_option("--attention", flags.attention, "kernel: flash or full")
      ->capture_default_str();
  app.add_option("--bucket-mb", flags.bucket_mb, "MiB a gradient bucket")
      ->capture_default_str();
}

// No config.json comes near; a wrong path may be a whole model.
constexpr uintmax_t kMaxConfigBytes = 1 << 20;

ModelShape ShapeFromFile(const std::string& model) {
  std::filesystem::path path = FromCallersFolder(model);
  if (std::filesystem::is_directory(path)) path /= "config.json";
  if (!std::filesystem::is_regular_file(path)) {
    throw InvalidArgument(
        "--model '" + model +
        "' is no preset and no file, expected a config.json, its folder, or a "
        "name that --help lists");
  }
  if (std::filesystem::file_size(path) > kMaxConfigBytes) {
    throw InvalidArgument("--model '" + model +
                          "' is larger than 1 MiB, expected a config.json");
  }
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    throw InvalidArgument("cannot read --model '" + model +
                          "', expected a file that can be read");
  }
  return ShapeFromConfig(text, model);
}

int64_t DeviceBytes(double gb) {
  constexpr double kMostGb = 1e6;
  if (std::isfinite(gb) && gb > 0 && gb <= kMostGb) {
    return std::llround(gb * 1e9);
  }
  throw InvalidArgument(
      fmt::format("device-gb is {}, expected more than 0 and at most 1e6", gb));
}

PlanRequest RequestOf(const Flags& flags) {
  PlanRequest request = flags.request;
  request.states.precision = PrecisionNamed(flags.precision);
  request.states.optimizer = OptimizerNamed(flags.optimizer);
  request.states.partition = PartitionNamed(flags.partition);
  request.attention = AttentionNamed(flags.attention);
  request.device_bytes = DeviceBytes(flags.device_gb);
  constexpr int64_t kMaxBucketMb = int64_t{1} << 30;
  if (flags.bucket_mb < 1 || flags.bucket_mb > kMaxBucketMb) {
    throw InvalidArgument(fmt::format("bucket-mb is {}, expected 1 to {}",
                                      flags.bucket_mb, kMaxBucketMb));
  }
  request.states.bucket_bytes = flags.bucket_mb << 20;
  request.shape = IsPreset(flags.model) ? PresetShape(flags.model)
                                        : ShapeFromFile(flags.model);
  return request;
}

// Both in one: the text, and the file; or the JSON alone.
int Show(const std::string& flag, const std::string& text,
         const std::string& json) {
  if (flag == "-") {
    fmt::print("{}", json);
    return 0;
  }
  OutputFile file("--json", flag);
  fmt::print("{}", text);
  file.Write(json);
  return 0;
}

int ShowShards(const Flags& flags) {
  const PlanRequest request = RequestOf(flags);
  const ShardPlan plan =
      ShardPlanOf(ElemsOf(ParameterTensors(request.shape)), request.states);
  return Show(flags.json, Describe(plan), AsJson(request, plan));
}

int ShowMemory(const Flags& flags) {
  const MemoryPlan plan = PlanMemory(RequestOf(flags));
  return Show(flags.json, AsText(plan), AsJson(plan));
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  CLI::App app(trainsys::kDescription, "plan");
  app.require_subcommand(1);
  trainsys::Flags flags;
  CLI::App& memory =
      *app.add_subcommand("memory", "memory of a rank, and what a step sends");
  CLI::App& shards =
      *app.add_subcommand("shards", "each rank's share of the parameters");
  for (CLI::App* const command : {&memory, &shards}) {
    trainsys::AddModelFlags(*command, flags);
  }
  trainsys::AddMemoryFlags(memory, flags);
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&] {
    return shards ? trainsys::ShowShards(flags) : trainsys::ShowMemory(flags);
  });
}
