// How long an all-reduce takes, on every backend.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/record/clock.h"
#include "tools/backend.h"
#include "tools/parse.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::NowNs;

constexpr char kDescription[] =
    "Times blocking all-reduces of f32, best and median of a number of turns,\n"
    "on rank 0, which starts each turn with a barrier.\n\n"
    "Example: bench_all_reduce --backend gloo --ranks 4 --gloo-native";

struct Line {
  int64_t bytes = 0;
  double best_us = 0;
  double median_us = 0;
};

Line Time(Communicator& comm, int64_t bytes, int turns) {
  std::vector<float> data(static_cast<size_t>(bytes / 4), 1);
  const auto buffer = collectives::AsBuffer(std::span(data));
  std::vector<double> us;
  for (int i = 0; i < turns; ++i) {
    comm.Barrier("turn");
    const int64_t began_ns = NowNs();
    comm.AllReduce(buffer, collectives::ReduceOp::kAverage, "data");
    us.push_back(static_cast<double>(NowNs() - began_ns) / 1e3);
  }
  std::sort(us.begin(), us.end());
  return {bytes, us.front(), us[us.size() / 2]};
}

std::vector<Line> Measure(collectives::RankRunner& runner, int ranks,
                          int turns) {
  std::vector<Line> lines;
  runner.Run({.ranks = ranks}, [&](Communicator& comm) {
    for (int64_t bytes = 4; bytes <= 64 << 20; bytes *= 16) {
      const Line line = Time(comm, bytes, turns);
      if (comm.rank() == 0) lines.push_back(line);
    }
  });
  return lines;
}

int Bench(const BackendFlags& flags, std::optional<int> asked, int turns,
          char** argv) {
  const Placement placement = Place(flags, ::getenv);
  const int ranks = ChooseRanks(placement, asked, 4);
  if (placement.MustLaunch()) return Launch(ranks, argv);
  const std::vector<Line> lines = Measure(*MakeRunner(placement), ranks, turns);
  if (lines.empty()) return 0;
  fmt::print("{} ranks as {}; all-reduce of f32, {} turns\n", ranks,
             Describe(placement), turns);
  fmt::print("{:>10} {:>12} {:>12} {:>10}\n", "bytes", "best, us", "median, us",
             "GB/s*");
  for (const Line& line : lines) {
    fmt::print("{:>10} {:>12.1f} {:>12.1f} {:>10.3f}\n", line.bytes,
               line.best_us, line.median_us,
               static_cast<double>(line.bytes) / line.median_us / 1e3);
  }
  fmt::print("   * bytes of the buffer by median time\n");
  return 0;
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  CLI::App app(trainsys::kDescription, "bench_all_reduce");
  trainsys::BackendFlags backend;
  std::optional<int> ranks;
  int turns = 30;
  trainsys::AddBackendFlags(app, backend);
  app.add_option("--ranks", ranks, "number of ranks (default: 4)")
      ->check(CLI::Range(1, collectives::kMaxRanks));
  app.add_option("--turns", turns, "of each size")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(
      app, [&] { return trainsys::Bench(backend, ranks, turns, argv); });
}
