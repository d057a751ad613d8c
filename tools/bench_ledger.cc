// What the memory ledger costs: an allocation, and a step.
#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <memory>
#include <optional>

#include "trainsys/measure/interleaved.h"
#include "tools/parse.h"
#include "tools/without_ledger.h"
#include "trainsys/data/stories.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/model/transformer_lm.h"
#include "trainsys/platform/blas.h"
#include "trainsys/train/job.h"

namespace trainsys {
namespace {

constexpr char kDescription[] =
    "Times allocations, and forward and backward of the default model on one\n"
    "rank, with the memory ledger (allocator, events, saved bytes) and with\n"
    "libtorch's own allocator, in turn. Both share one heap, and one's sizes "
    "fit\n"
    "the other's holes badly: --only has a process of its own for each.\n\n"
    "Example: bench_ledger --turns 100";

constexpr int kAllocations = 100'000;

void Allocate() {
  for (int i = 0; i < kAllocations; ++i) at::empty({64, 256}, at::kFloat);
}

struct Model {
  JobOptions options;
  ByteDataset data = ByteDataset::FromBytes(MakeStories(1, 1 << 20), 256);
  std::shared_ptr<TransformerLM> lm = MakeModel(options, data.context(), 0);

  void ForwardAndBackward() const {
    for (const at::Tensor& p : lm->parameters()) p.mutable_grad().reset();
    LocalLoss(options, data, *lm, /*step=*/0, /*rank=*/0).backward();
  }
};

void PrintLine(const char* name, const std::vector<std::vector<double>>& ms,
               double scale) {
  const Quartiles more = OverTurns(ms[0].size(), [&ms](size_t turn) {
    return 100 * (ms[1][turn] / ms[0][turn] - 1);
  });
  fmt::print(
      "{:<34} {:>9.2f} {:>9.2f} {:>+8.2f} %  {:+.2f} {:+.2f} {:+.2f} %\n", name,
      Best(ms[0]) * scale, Best(ms[1]) * scale,
      100 * (Best(ms[1]) / Best(ms[0]) - 1), more.low, more.median, more.high);
}

int BenchOne(int turns, bool with_ledger) {
  MemoryLedger ledger;
  const LedgerScope mine(ledger);
  std::optional<WithoutLedger> without;
  if (!with_ledger) without.emplace();
  const Model model;
  const auto ms = InterleavedMs({[&] {
                                  std::optional<SavedBytesScope> saved;
                                  if (with_ledger)
                                    saved.emplace(model.lm->parameters());
                                  model.ForwardAndBackward();
                                }},
                                turns);
  fmt::print(
      "forward and backward {} the ledger: best {:.2f} ms, median "
      "{:.2f} ms of {} turns\n",
      with_ledger ? "with" : "without", Best(ms[0]), Median(ms[0]), turns);
  return 0;
}

int Bench(int turns) {
  MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const Model model;
  const auto plainly = [](const auto& fn) {
    return [&fn] {
      const WithoutLedger without;
      fn();
    };
  };
  const auto step = [&model] { model.ForwardAndBackward(); };
  const auto counted_step = [&model] {
    const SavedBytesScope saved(model.lm->parameters());
    model.ForwardAndBackward();
  };
  const auto allocations = InterleavedMs({plainly(Allocate), Allocate}, turns);
  const auto steps = InterleavedMs({plainly(step), counted_step}, turns);
  fmt::print("{}, one thread; {} turns in pairs\n", Describe(DetectBlas()),
             turns);
  fmt::print("{:<34} {:>9} {:>9} {:>10}  {}\n", "best of all turns", "without",
             "with", "more", "quartiles of pairs");
  PrintLine("at::empty([64, 256]) and free, ns", allocations,
            1e6 / kAllocations);
  PrintLine("forward and backward, ms", steps, 1);
  return 0;
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  trainsys::ReexecWithFastBlas(argv);
  CLI::App app(trainsys::kDescription, "bench_ledger");
  int turns = 40;
  app.add_option("--turns", turns, "of each variant")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  std::string only;
  app.add_option("--only", only, "steps of one variant: with or without")
      ->check(CLI::IsMember({"with", "without"}));
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [turns, &only] {
    trainsys::UseOneBlasThread();
    return only.empty() ? trainsys::Bench(turns)
                        : trainsys::BenchOne(turns, only == "with");
  });
}
