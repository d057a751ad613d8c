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

void Allocate() {
  for (int i = 0; i < 100'000; ++i) at::empty({64, 256}, at::kFloat);
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
  const std::vector<double> allocations =
      InterleavedMs({plainly(Allocate), Allocate}, turns);
  const std::vector<double> steps =
      InterleavedMs({plainly(step), counted_step}, turns);
  const uint64_t before = ledger.lost_events() + ledger.Events().size();
  counted_step();
  const uint64_t events =
      ledger.lost_events() + ledger.Events().size() - before;
  fmt::print("{}, one thread; medians of {} turns\n", Describe(DetectBlas()),
             turns);
  fmt::print("{:<34} {:>10} {:>10} {:>8}\n", "", "without", "with", "more");
  fmt::print("{:<34} {:>10.1f} {:>10.1f} {:>7.1f}%\n",
             "at::empty([64, 256]) and free, ns", allocations[0] * 10,
             allocations[1] * 10, 100 * (allocations[1] / allocations[0] - 1));
  fmt::print("{:<34} {:>10.2f} {:>10.2f} {:>7.2f}%\n",
             "forward and backward, ms", steps[0], steps[1],
             100 * (steps[1] / steps[0] - 1));
  const double ns = (allocations[1] - allocations[0]) * 10 / 2;  // an event
  fmt::print(
      "{} events a step, {:.0f} ns each: {:.3f} ms, {:.3f}% of it; target 1%\n",
      events, ns, static_cast<double>(events) * ns / 1e6,
      static_cast<double>(events) * ns / 1e4 / steps[0]);
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
