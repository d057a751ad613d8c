#include "trainsys/measure/sweep_step.h"

#include <ATen/core/Tensor.h>

#include "collectives/record/clock.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/model/transformer_lm.h"
#include "trainsys/zero/zero_optimizer.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::NowNs;

BucketedDDPOptions OptionsOf(const SweepVariant& variant) {
  BucketedDDPOptions options;
  options.bucket_bytes = options.first_bucket_bytes = variant.bucket_bytes;
  if (!variant.is_averaged) {
    options.comm_hook = [](const FullBucket&, Communicator&) {
      return collectives::Work();  // done
    };
  }
  return options;
}

}  // namespace

struct SweepStep::Parts {
  Parts(const JobOptions& options, const SweepVariant& variant,
        const ByteDataset& data, Communicator& comm)
      : options(options),
        data(data),
        rank(comm.rank()),
        model(MakeModel(options, data.context(), rank)),
        ddp(*model, comm, OptionsOf(variant)),
        optimizer(ddp, comm, AdamWOf(options)) {}

  const JobOptions& options;
  const ByteDataset& data;
  const int rank;
  const std::shared_ptr<TransformerLM> model;
  BucketedDDP ddp;
  ZeROOptimizer optimizer;
};

SweepStep::SweepStep(const JobOptions& options, const SweepVariant& variant,
                     const ByteDataset& data, Communicator& comm)
    : parts_(std::make_unique<Parts>(options, variant, data, comm)) {}

SweepStep::~SweepStep() = default;

StepMarks SweepStep::Run(int64_t step) {
  Parts& p = *parts_;
  StepMarks marks(kFirstReady);
  marks[kMinusBegin] = -NowNs();
  p.ddp.ZeroGrad();
  p.ddp.BeginForward();
  const at::Tensor loss = LocalLoss(p.options, p.data, *p.model, step, p.rank);
  marks[kForwardEnd] = NowNs();
  loss.backward();
  marks[kBackwardEnd] = NowNs();
  p.ddp.FinishGradientSync();
  marks[kSyncEnd] = NowNs();
  p.optimizer.Step();
  marks[kOptimizerEnd] = NowNs();
  const std::vector<int64_t>& ready_ns = p.ddp.ready_ns();
  marks.insert(marks.end(), ready_ns.begin(), ready_ns.end());
  return marks;
}

const std::vector<Bucket>& SweepStep::plan() const {
  return parts_->ddp.buckets();
}

int64_t SweepStep::ElemBytes() const {
  return static_cast<int64_t>(parts_->ddp.parameters().at(0).element_size());
}

}  // namespace trainsys
