#include "trainsys/train/step.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::PhaseScope;

double MeanOverRanks(double value, Communicator& comm) {
  comm.AllReduce(collectives::AsBuffer(std::span(&value, 1)),
                 collectives::ReduceOp::kAverage, "loss");
  return value;
}

}  // namespace

double TrainStep(const StepParts& parts, int64_t step) {
  collectives::Recorder& recorder = parts.comm.recorder();
  const PhaseScope whole(recorder, "step", step);
  at::Tensor loss;  // a scalar
  {
    const PhaseScope phase(recorder, "forward", step);
    parts.ddp.ZeroGrad();
    loss = parts.loss_of_batch();
  }
  {
    // Its hooks post the buckets' all-reduces.
    const PhaseScope phase(recorder, "backward", step);
    loss.backward();
  }
  {
    const PhaseScope phase(recorder, "gradient sync", step);
    parts.ddp.FinishGradientSync();
  }
  {
    const PhaseScope phase(recorder, "optimizer", step);
    parts.optimizer.Step();
  }
  return MeanOverRanks(loss.item<double>(), parts.comm);
}

}  // namespace trainsys
