// What the memory ledger costs: an allocation, and a step.
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/core.h>

#include <memory>
#include <optional>

#include "tools/interleaved.h"
#include "tools/parse.h"
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
    "libtorch's own allocator, in turn.\n\n"
    "Example: bench_ledger --turns 100";

// libtorch's own allocator while it lives.
class WithoutLedger {
 public:
  WithoutLedger() : ours_(c10::GetCPUAllocator()) {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), kPriority);
  }
  ~WithoutLedger() { c10::SetCPUAllocator(ours_, kPriority); }
  WithoutLedger(const WithoutLedger&) = delete;
  WithoutLedger& operator=(const WithoutLedger&) = delete;

 private:
  static constexpr uint8_t kPriority = 1;  // the ledger's
  c10::Allocator* const ours_;
};

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
  fmt::print("{:<34} {:>9.2f} {:>9.2f}   {:+.2f} % {:+.2f} % {:+.2f} %\n", name,
             Median(ms[0]) * scale, Median(ms[1]) * scale, more.low,
             more.median, more.high);
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
  fmt::print("{:<34} {:>9} {:>9}   {}\n", "medians", "without", "with",
             "more, in pairs: quartiles");
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
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [turns] {
    trainsys::UseOneBlasThread();
    return trainsys::Bench(turns);
  });
}
