#include "tools/optimizer_bench/zero_steps.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>

#include "collectives/communicator.h"
#include "collectives/record/clock.h"
#include "collectives/shm/run_ranks.h"
#include "tools/optimizer_bench/arrays.h"
#include "trainsys/measure/agreed_interrupt.h"
#include "trainsys/measure/interleaved.h"
#include "trainsys/optim/optimizer.h"
#include "trainsys/optim/update.h"
#include "trainsys/tensor/tensor_memory.h"
#include "trainsys/terminal/interrupt.h"
#include "trainsys/zero/zero_optimizer.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::NowNs;

// When a rank did its part of each turn, the warm-up first.
struct Spans {
  std::vector<int64_t> begin_ns;
  std::vector<int64_t> end_ns;
};

std::unique_ptr<Optimizer> MakeSharded(const ZeroCase& what,
                                       Communicator& comm) {
  std::vector<at::Tensor> parameters;
  for (const int64_t elems : SizesOf(what.elems, what.tensors)) {
    parameters.push_back(at::randn({elems}).set_requires_grad(true));
    parameters.back().mutable_grad() = at::randn({elems}).mul_(1e-3);
  }
  return std::make_unique<ZeROOptimizer>(std::move(parameters), comm,
                                         AdamWOptions{});
}

// One rank's part of it.
class RankTurns {
 public:
  RankTurns(const ZeroCase& what, Communicator& comm)
      : comm_(comm),
        optimizer_(MakeSharded(what, comm)),
        shard_(SizesOf(what.elems, comm.ranks())),
        flat_(at::randn({what.elems})),
        own_(shard_[static_cast<size_t>(comm.rank())]) {}

  // Errors: Interrupted, on every rank alike.
  std::vector<Spans> Run(int turns, Progress& progress) {
    std::vector<Spans> spans(3);
    InterleavedMs({Timed(spans[0], [this] { optimizer_->Step(); }),
                   Timed(spans[1], [this] { Update(); }),
                   Timed(spans[2], [this] { Gather(); })},
                  turns,
                  [&](int turn) { Watch(progress, turn + 1, turns + 1); });
    return spans;
  }

 private:
  void Watch(Progress& progress, int done, int all) {
    const int signal = AgreedSignal(comm_);
    if (signal != 0) throw Interrupted(signal);
    if (comm_.rank() != 0) return;
    progress.Show(fmt::format("ZeRO-1, {} ranks", comm_.ranks()), done, all);
  }

  std::function<void()> Timed(Spans& spans, std::function<void()> work) {
    return [this, &spans, work = std::move(work)] {
      comm_.Barrier("turn");
      spans.begin_ns.push_back(NowNs());
      work();
      spans.end_ns.push_back(NowNs());
    };
  }

  void Update() {
    UpdateElements<float>(AdamWOptions{}, ++step_, 1,
                          own_.Part(0, own_.param.numel()));
  }

  void Gather() {
    int64_t begin = 0;
    for (int r = 0; r < comm_.rank(); ++r) {
      begin += shard_[static_cast<size_t>(r)];
    }
    const collectives::Buffer all = BufferOf(flat_);
    auto* const own = static_cast<float*>(all.data) + begin;
    comm_.AllGather({own, all.dtype, own_.param.numel()}, all, shard_,
                    "gather alone");
  }

  Communicator& comm_;
  const std::unique_ptr<Optimizer> optimizer_;
  const std::vector<int64_t> shard_;  // elements of each rank's
  const at::Tensor flat_;             // [elems]
  const Arrays own_;
  int64_t step_ = 0;
};

std::vector<double> MsOf(size_t variant,
                         const std::vector<std::vector<Spans>>& of_ranks) {
  std::vector<double> ms;
  for (size_t turn = 1; turn < of_ranks[0][variant].end_ns.size(); ++turn) {
    int64_t begin_ns = of_ranks[0][variant].begin_ns[turn];
    int64_t end_ns = of_ranks[0][variant].end_ns[turn];
    for (const std::vector<Spans>& rank : of_ranks) {
      begin_ns = std::min(begin_ns, rank[variant].begin_ns[turn]);
      end_ns = std::max(end_ns, rank[variant].end_ns[turn]);
    }
    ms.push_back(static_cast<double>(end_ns - begin_ns) / 1e6);
  }
  return ms;
}

}  // namespace

ZeroTimes TimeZeroSteps(const ZeroCase& what, int turns, Progress& progress) {
  std::vector<std::vector<Spans>> spans(static_cast<size_t>(what.ranks));
  int signal = 0;  // rank 0 writes it
  collectives::RunRanks({.ranks = what.ranks}, [&](Communicator& comm) {
    RankTurns rank(what, comm);
    try {
      spans[static_cast<size_t>(comm.rank())] = rank.Run(turns, progress);
    } catch (const Interrupted& interrupted) {
      if (comm.rank() == 0) signal = interrupted.signal();
    }
  });
  if (signal != 0) throw Interrupted(signal);
  return {MsOf(0, spans), MsOf(1, spans), MsOf(2, spans)};
}

std::vector<int64_t> SizesOf(int64_t elems, int tensors) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < tensors; ++i) {
    sizes.push_back(elems * (i + 1) / tensors - elems * i / tensors);
  }
  return sizes;
}

}  // namespace trainsys
