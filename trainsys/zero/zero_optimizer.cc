#include "trainsys/zero/zero_optimizer.h"

#include <cmath>
#include <span>
#include <utility>

#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Work;

constexpr char kLabel[] = "parameters";

ShardOptimizer MakeLocal(std::vector<ParameterGroup> groups, Communicator& comm,
                         Partition partition) {
  std::vector<at::Tensor> parameters = ParametersOf(groups);
  ShardPlan plan = PlanShards(BytesOfEach(parameters), comm.ranks(), partition);
  return {std::move(parameters), std::move(groups), std::move(plan),
          comm.rank()};
}

}  // namespace

ZeROOptimizer::ZeROOptimizer(BucketedDDP& ddp, Communicator& comm,
                             const OptimizerOptions& options)
    : ZeROOptimizer(ddp, comm,
                    std::vector<ParameterGroup>{{ddp.planned(), options}}) {}

ZeROOptimizer::ZeROOptimizer(BucketedDDP& ddp, Communicator& comm,
                             std::vector<ParameterGroup> groups)
    : local_(ddp.planned(), std::move(groups), ddp.shard_plan(), comm.rank()),
      comm_(comm.Duplicate("zero")),
      gradient_([&ddp](size_t p, int64_t begin, int64_t elems) {
        return ddp.Gradient(p, begin, elems);
      }),
      zero_grad_([&ddp] { ddp.ZeroGrad(); }) {}

ZeROOptimizer::ZeROOptimizer(std::vector<at::Tensor> parameters,
                             Communicator& comm,
                             const OptimizerOptions& options,
                             Partition partition)
    : ZeROOptimizer(
          std::vector<ParameterGroup>{{std::move(parameters), options}}, comm,
          partition) {}

ZeROOptimizer::ZeROOptimizer(std::vector<ParameterGroup> groups,
                             Communicator& comm, Partition partition)
    : local_(MakeLocal(std::move(groups), comm, partition)),
      comm_(comm.Duplicate("zero")),
      gradient_(GradientsInPlace(local_.parameters())),
      zero_grad_([this] { ZeroGradients(local_.parameters()); }) {}

void ZeROOptimizer::StepScaled(double gradient_scale) {
  UpdateShard(gradient_scale);
  GatherParameters();
}

void ZeROOptimizer::UpdateShard(double gradient_scale) {
  local_.TakeBack();
  local_.UpdateAll(gradient_, gradient_scale);
}

double ZeROOptimizer::GradNorm() {
  ExactSum sum;
  local_.AddSquares(gradient_, sum);
  comm_->AllReduce(collectives::AsBuffer(sum.parts()),
                   collectives::ReduceOp::kSum, "squared norm");
  return std::sqrt(sum.Round());
}

void ZeROOptimizer::GatherParameters() {
  for (const at::Tensor& p : local_.parameters()) MarkWritten(p);
  if (plan().partition != Partition::kFlat) return BroadcastFromOwners();
  const Shard& own = plan().shards[static_cast<size_t>(comm_->rank())];
  comm_->AllGather(local_.flat().Part(own.begin, own.bytes),
                   BufferOf(local_.flat().flat()), Counts(plan()), kLabel);
}

void ZeROOptimizer::BroadcastFromOwners() {
  std::vector<Work> works;
  for (int owner = 0; owner < comm_->ranks(); ++owner) {
    const Shard& shard = plan().shards[static_cast<size_t>(owner)];
    if (shard.bytes == 0) continue;
    works.push_back(comm_->StartBroadcast(
        local_.flat().Part(shard.begin, shard.bytes), owner, kLabel));
  }
  for (Work& work : works) work.Wait();
}

}  // namespace trainsys
