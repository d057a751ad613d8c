#include "tools/step_bench/rungs.h"

#include <ATen/ops/randint.h>
#include <fmt/core.h>

#include <chrono>
#include <span>
#include <utility>

#include "collectives/errors.h"
#include "collectives/record/clock.h"
#include "collectives/shm/run_ranks.h"
#include "trainsys/ddp/async_ddp.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/ddp/same_module.h"
#include "trainsys/ddp/simple_ddp.h"
#include "trainsys/measure/agreed_interrupt.h"
#include "trainsys/model/transformer_lm.h"
#include "trainsys/train/job.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::NowNs;

// Before the first turn that counts: allocators get their sizes, and buckets
// are planned again before the second step.
constexpr int kWarmUps = 2;

std::unique_ptr<DataParallel> Wrap(Rung rung, int64_t bucket_bytes,
                                   torch::nn::Module& model,
                                   Communicator& comm) {
  if (rung == Rung::kIdeal) return nullptr;
  if (rung == Rung::kBucketed) {
    return std::make_unique<BucketedDDP>(
        model, comm, BucketedDDPOptions{.bucket_bytes = bucket_bytes});
  }
  BroadcastFromRank0(model, comm);
  if (rung == Rung::kAsync) return std::make_unique<AsyncDDP>(model, comm);
  return std::make_unique<SimpleDDP>(model, comm);
}

std::shared_ptr<TransformerLM> ModelOf(const StepCase& what, int rank) {
  JobOptions options;
  options.model = what.model;
  options.recompute = "none";
  return MakeModel(options, what.model.context, rank);
}

// What one rank saw of a turn; the largest of all ranks' say how long it took:
// with more ranks than cores some have not begun when others are done.
struct Turn {
  int64_t minus_begin_ns = 0;
  int64_t end_ns = 0;
};
static_assert(sizeof(Turn) == 2 * sizeof(int64_t));

std::vector<double> MsOfAllRanks(std::vector<Turn> turns, Communicator& comm) {
  comm.AllReduce({turns.data(), collectives::DType::kI64,
                  static_cast<int64_t>(turns.size()) * 2},
                 collectives::ReduceOp::kMax, "times of turns");
  std::vector<double> ms;
  for (const Turn& turn : turns) {
    ms.push_back(static_cast<double>(turn.end_ns + turn.minus_begin_ns) / 1e6);
  }
  return ms;
}

uint64_t RecordsSoFar(Communicator& comm) {
  return comm.recorder().lost() + comm.recorder().Records().size();
}

// One rank's part of TimeSteps.
class RankTurns {
 public:
  RankTurns(const StepCase& what, const PeerStep& peer, Communicator& comm)
      : what_(what), peer_(peer), comm_(comm) {
    for (const Rung rung : kRungs) {
      steps_.push_back(std::make_unique<RankStep>(what, rung, comm));
    }
  }

  StepTimes Run(int turns, Progress& progress) {
    for (int turn = -kWarmUps; turn < turns; ++turn) {
      if (AgreedSignal(comm_) != 0) break;
      if (comm_.rank() == 0) {
        progress.Show(fmt::format("{}, {} ranks", what_.name, what_.ranks),
                      turn + kWarmUps, turns + kWarmUps);
      }
      for (size_t i = 0; i <= steps_.size(); ++i) {
        const size_t v = turn % 2 == 0 ? i : steps_.size() - i;
        comm_.Barrier("turn");
        v < steps_.size() ? RunStep(v, turn >= 0) : RunPeer(turn >= 0);
      }
    }
    StepTimes times;
    for (size_t v = 0; v < steps_.size(); ++v) {
      times.rung_ms[v] = MsOfAllRanks(std::move(seen_[v]), comm_);
    }
    if (has_peer_) times.peer_ms = std::move(peer_ms_);
    times.bucketed_records = bucketed_records_;
    return times;
  }

 private:
  void RunStep(size_t v, bool counts) {
    const bool is_bucketed = kRungs[v] == Rung::kBucketed;
    const uint64_t before =
        is_bucketed && !counts ? RecordsSoFar(comm_) : uint64_t{0};
    const int64_t begin_ns = NowNs();
    steps_[v]->Run();
    const int64_t end_ns = NowNs();
    if (counts) {
      seen_[v].push_back({-begin_ns, end_ns});
    } else if (is_bucketed) {
      bucketed_records_ = RecordsSoFar(comm_) - before;
    }
  }

  // The other ranks sleep in the next barrier.
  void RunPeer(bool counts) {
    if (comm_.rank() != 0 || !has_peer_) return;
    const std::optional<double> ms = peer_();
    has_peer_ = ms.has_value();
    if (ms && counts) peer_ms_.push_back(*ms);
  }

  const StepCase& what_;
  const PeerStep& peer_;
  Communicator& comm_;
  std::vector<std::unique_ptr<RankStep>> steps_;
  std::array<std::vector<Turn>, kRungs.size()> seen_;
  bool has_peer_ = static_cast<bool>(peer_);
  std::vector<double> peer_ms_;
  uint64_t bucketed_records_ = 0;
};

}  // namespace

std::string Name(Rung rung) {
  switch (rung) {
    case Rung::kIdeal:
      return "ideal";
    case Rung::kSimple:
      return "simple";
    case Rung::kAsync:
      return "async";
    case Rung::kBucketed:
      return "bucketed";
  }
  return "";
}

StepCase CaseOf(const std::string& name) {
  StepCase what;
  what.name = name;
  if (name == "10m") {  // 9,785,472 parameters
    what.model.dim = 384;
    what.model.layers = 5;
    what.model.heads = 6;
    what.model.ffn = 1152;
  } else if (name == "tiny") {
    what.model = {.vocab = 256,
                  .context = 8,
                  .dim = 8,
                  .layers = 1,
                  .heads = 1,
                  .ffn = 16};
  } else if (name != "default") {
    throw collectives::InvalidArgument("--models is '" + name +
                                       "', expected default, 10m or tiny");
  }
  return what;
}

struct RankStep::Parts {
  std::shared_ptr<TransformerLM> model;
  std::vector<at::Tensor> parameters;
  std::unique_ptr<DataParallel> ddp;  // null: ideal
  at::Tensor tokens, targets;         // [B, T]
};

RankStep::RankStep(const StepCase& what, Rung rung, Communicator& comm)
    : parts_(std::make_unique<Parts>()) {
  parts_->model = ModelOf(what, comm.rank());
  parts_->parameters = parts_->model->parameters();
  parts_->ddp = Wrap(rung, what.bucket_bytes, *parts_->model, comm);
  const auto random = [&what] {
    return at::randint(what.model.vocab, {what.rows, what.model.context},
                       at::kLong);
  };
  parts_->tokens = random();
  parts_->targets = random();
}

RankStep::~RankStep() = default;

void RankStep::Run() {
  for (const at::Tensor& p : parts_->parameters) p.mutable_grad().reset();
  if (parts_->ddp) parts_->ddp->BeginForward();
  parts_->model->Loss(parts_->tokens, parts_->targets).backward();
  if (parts_->ddp) parts_->ddp->FinishGradientSync();
}

const std::vector<at::Tensor>& RankStep::parameters() const {
  return parts_->parameters;
}

StepTimes TimeSteps(const StepCase& what, int turns, const PeerStep& peer,
                    Progress& progress) {
  StepTimes times;
  collectives::RunRanks(
      {.ranks = what.ranks, .timeout = std::chrono::minutes(5)},
      [&](Communicator& comm) {
        StepTimes mine = RankTurns(what, peer, comm).Run(turns, progress);
        if (comm.rank() == 0) times = std::move(mine);
      });
  return times;
}

}  // namespace trainsys
