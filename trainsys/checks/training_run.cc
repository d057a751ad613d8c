#include "trainsys/checks/training_run.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "collectives/c10d/device_scope.h"
#include "collectives/gather.h"
#include "collectives/record/clock.h"
#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/checks/faulty_communicator.h"
#include "trainsys/checks/kept_bytes.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/tensor/tensor_memory.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::PhaseRecord;
using collectives::PhaseScope;

using Tensors = std::vector<at::Tensor>;

// A collective.
double DifferenceFromRank0(const Tensors& tensors, Communicator& comm) {
  const Tensors rank0 = Snapshot(tensors);
  for (const at::Tensor& t : rank0) {
    comm.Broadcast(BufferOf(t), 0, "parameters of rank 0");
  }
  return MaxDifference(tensors, rank0);
}

double Largest(const Tensors& tensors) {
  double largest = 0;
  for (const at::Tensor& t : tensors) {
    largest = std::max(largest, t.abs().max().item<double>());
  }
  return largest;
}

double NormOf(const Tensors& tensors) {
  double squares = 0;
  for (const at::Tensor& t : tensors) {
    squares += t.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(squares);
}

Tensors Times(const Tensors& tensors, double factor) {
  Tensors products;
  for (const at::Tensor& t : tensors) products.push_back(t * factor);
  return products;
}

GradientFacts Compare(const Tensors& parameters, const Trajectory::Step& step,
                      const Communicator& comm) {
  GradientFacts facts;
  Tensors gradients;
  for (const at::Tensor& p : parameters) {
    if (!p.grad().defined()) ++facts.num_missing;
    gradients.push_back(p.grad());
  }
  if (facts.num_missing > 0) return facts;
  facts.largest = Largest(step.mean);
  facts.from_mean = MaxDifference(gradients, step.mean);
  facts.from_sum = MaxDifference(gradients, Times(step.mean, comm.ranks()));
  facts.from_fraction =
      MaxDifference(gradients, Times(step.mean, 1.0 / comm.ranks()));
  facts.from_own =
      MaxDifference(gradients, step.own[static_cast<size_t>(comm.rank())]);
  return facts;
}

// Counts the elements that kept their bits where the reference's changed.
void CountUnchanged(const Tensors& parameters, const Trajectory& reference,
                    RankFacts& facts) {
  int64_t before = 0;  // elements of the tensors before this one
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor kept =
        (parameters[i].detach().cpu() == reference.start[i])
            .logical_and(reference.start[i] != reference.steps[0].after[i])
            .flatten();
    const int64_t num = kept.sum().item<int64_t>();
    if (num > 0 && facts.num_unchanged == 0) {
      facts.first_unchanged = before + kept.nonzero()[0].item<int64_t>();
    }
    facts.num_unchanged += num;
    before += kept.numel();
  }
}

// An accelerator computes on after backward() has returned: some bucket must be
// complete before that has ended too.
std::string DeviceOverlapViolation(const collectives::Recorder& recorder,
                                   const PhaseRecord& backward) {
  for (const collectives::Record& record : recorder.Records()) {
    if (IsBucket(record) && record.done_ns > backward.begin_ns &&
        record.done_ns < backward.end_ns) {
      return "";
    }
  }
  return "no bucket was complete before the device had done backward";
}

class Trainer {
 public:
  Trainer(const TrainingParts& parts, const References& references,
          const CheckOptions& options, Communicator& real)
      : references_(references),
        device_(options.device),
        real_(real),
        comm_(real, options.fault),
        samples_(MakeSamples(kDataSeed)
                     .Part(real.rank(), real.ranks())
                     .On(options.device)),
        model_(parts.model(kModelSeed + real.rank())),
        kept_(ledger_, model_->parameters()) {
    MoveTo(device_, *model_);
    // Before those of the part that is checked, which may post from theirs.
    for (const at::Tensor& p : model_->parameters()) {
      hooks_.emplace_back(p, [this] { last_ready_ns_ = collectives::NowNs(); });
    }
    ddp_ = parts.ddp(*model_, comm_);
    kept_.Count(
        [&] { optimizer_ = parts.optimizer(ddp_->parameters(), comm_); });
    facts_.start_from_rank0 = DifferenceFromRank0(model_->parameters(), real_);
  }

  void Step(size_t step) {
    kept_.Count([this] { optimizer_->ZeroGrad(); });
    ddp_->BeginForward();
    const at::Tensor loss = LossOf(*model_, samples_);
    {
      const PhaseScope backward(comm_.recorder(), "backward",
                                static_cast<int64_t>(step));
      loss.backward();
      collectives::AwaitDevice(device_);
    }
    ddp_->FinishGradientSync();
    Observe(step);
    kept_.Count([this] { optimizer_->Step(); });
    if (step > 0) return;
    facts_.update_from_rank0 = DifferenceFromRank0(model_->parameters(), real_);
    CountUnchanged(model_->parameters(), references_.a, facts_);
  }

  AllRanks Finish() {
    const Tensors parameters = model_->parameters();
    facts_.state_bytes = optimizer_->StateBytes();
    facts_.kept_bytes = kept_.bytes();
    facts_.is_equal = EqualBits(parameters, references_.a.steps.back().after);
    facts_.difference = MaxDifference(parameters, references_.b);
    return {Gather(real_, facts_, "facts"),
            GatherText(real_, violation_, "order of buckets")};
  }

 private:
  // Gradients and traffic, before the optimizer's step.
  void Observe(size_t step) {
    const int64_t end_ns = collectives::NowNs();
    const collectives::Recorder& recorder = comm_.recorder();
    const PhaseRecord backward =
        *FindPhase(recorder, "backward", static_cast<int64_t>(step));
    facts_.traffic[step] =
        ReadTraffic(recorder, backward, last_ready_ns_, end_ns);
    const Trajectory::Step& reference = references_.a.steps[step];
    facts_.gradients[step] = Compare(model_->parameters(), reference, real_);
    if (step == 0) {
      kept_.Count([this] { facts_.norm = optimizer_->GradNorm(); });
      facts_.expected_norm = NormOf(reference.mean);
    }
    const auto* ours = dynamic_cast<const BucketedDDP*>(ddp_.get());
    if (ours == nullptr || !violation_.empty()) return;
    violation_ =
        OverlapViolation(recorder, backward, ours->buckets(), ours->ready_ns());
    // The first step's kernels are still being loaded.
    if (violation_.empty() && device_ != collectives::kHostMemory && step > 0) {
      violation_ = DeviceOverlapViolation(recorder, backward);
    }
  }

  // First: of all that the rank allocates and frees.
  const MemoryLedger ledger_{/*event_capacity=*/0};
  const LedgerScope scope_{ledger_};
  const References& references_;
  const int device_;
  Communicator& real_;
  FaultyCommunicator comm_;
  const Samples samples_;
  const std::shared_ptr<SmallModel> model_;
  KeptBytes kept_;
  int64_t last_ready_ns_ = 0;
  std::vector<GradientHook> hooks_;
  std::unique_ptr<DataParallel> ddp_;
  std::unique_ptr<Optimizer> optimizer_;
  RankFacts facts_;
  std::string violation_;
};

}  // namespace

AllRanks TrainRank(const TrainingParts& parts, const References& references,
                   const CheckOptions& options, Communicator& real) {
  Trainer trainer(parts, references, options, real);
  for (size_t step = 0; step < kCheckSteps; ++step) trainer.Step(step);
  return trainer.Finish();
}

}  // namespace trainsys
