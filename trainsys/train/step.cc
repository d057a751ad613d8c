#include "trainsys/train/step.h"

#include <array>
#include <span>
#include <string>

#include "trainsys/memory/ledger.h"
#include "trainsys/memory/saved_bytes.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::PhaseScope;

// What all ranks learn at a step's end.
struct Ending {
  double loss = 0;           // mean over ranks
  double share_to_stop = 0;  // of the ranks that want to
};

Ending MeanOverRanks(const Ending& ending, Communicator& comm) {
  std::array<double, 2> means = {ending.loss, ending.share_to_stop};
  comm.AllReduce(collectives::AsBuffer(std::span<double>(means)),
                 collectives::ReduceOp::kAverage, "loss");
  return {means[0], means[1]};
}

// A part of the step, for the records and for the memory ledger.
class Phase {
 public:
  Phase(collectives::Recorder& recorder, const std::string& name, int64_t step)
      : after_("after " + name), scope_(recorder, name, step) {}
  ~Phase() { MarkMemory(after_); }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  const std::string after_;
  const PhaseScope scope_;
};

}  // namespace

StepResult TrainStep(const StepParts& parts, int64_t step) {
  collectives::Recorder& recorder = parts.comm.recorder();
  const PhaseScope whole(recorder, "step", step);
  const SavedBytesScope saved(parts.ddp.parameters());
  StepResult result;
  at::Tensor loss;  // a scalar
  {
    const Phase phase(recorder, "forward", step);
    parts.ddp.ZeroGrad();
    parts.ddp.BeginForward();
    loss = parts.loss_of_batch();
    result.saved_raw_bytes = saved.raw_bytes();
    result.saved_distinct_bytes = saved.distinct_bytes();
  }
  {
    // Its hooks post the buckets' all-reduces.
    const Phase phase(recorder, "backward", step);
    loss.backward();
  }
  {
    const Phase phase(recorder, "gradient sync", step);
    parts.ddp.FinishGradientSync();
  }
  {
    const Phase phase(recorder, "optimizer", step);
    parts.optimizer.Step();
  }
  const bool wants_to_stop = parts.wants_to_stop && parts.wants_to_stop();
  const Ending ending = MeanOverRanks(
      {loss.item<double>(), wants_to_stop ? 1.0 : 0.0}, parts.comm);
  result.loss = ending.loss;
  result.must_stop = ending.share_to_stop > 0;
  return result;
}

}  // namespace trainsys
