#include "trainsys/budget/traffic.h"

#include <string>
#include <vector>

#include "collectives/call.h"
#include "collectives/errors.h"
#include "trainsys/ddp/bucket_plan.h"

namespace trainsys {
namespace {

using collectives::Operation;

// The recorder's rule, so that plan and record agree to the byte.
int64_t Sent(Operation operation, int64_t bytes, int ranks) {
  collectives::Call call;
  call.operation = operation;
  call.dtype = collectives::DType::kU8;
  call.elems = bytes;
  return collectives::SentBytes(call, ranks);
}

int64_t SentOfBuckets(Operation operation, std::span<const int64_t> tensors,
                      const StatesOptions& options) {
  const int64_t elem_bytes =
      BytesOf(options.precision, options.optimizer).gradient;
  std::vector<ParameterSize> sizes;
  for (int64_t elems : tensors) sizes.push_back({elems, elem_bytes, 0});
  int64_t sent = 0;
  for (const Bucket& bucket : PlanBuckets(sizes, {options.bucket_bytes})) {
    sent += Sent(operation, bucket.layout.elems * elem_bytes, options.ranks);
  }
  return sent;
}

// Of a buffer of `elem_bytes` for each element of the parameters.
int64_t SentOfShards(const ShardPlan& plan, const StatesOptions& options,
                     int64_t elem_bytes) {
  const int64_t parameter_bytes =
      BytesOf(options.precision, options.optimizer).parameter;
  const auto bytes = [=](int64_t in_plan) {
    return in_plan / parameter_bytes * elem_bytes;
  };
  if (options.partition == Partition::kFlat) {
    return Sent(Operation::kAllGather, bytes(plan.bytes), options.ranks);
  }
  int64_t sent = 0;
  for (const Shard& shard : plan.shards) {
    sent += Sent(Operation::kBroadcast, bytes(shard.bytes), options.ranks);
  }
  return sent;
}

int64_t SentOfGradients(std::span<const int64_t> tensors,
                        const StatesOptions& options, int64_t micro_steps) {
  const auto once = [&](Operation operation) {
    return SentOfBuckets(operation, tensors, options);
  };
  if (options.AllReduces()) return once(Operation::kAllReduce);
  const int64_t times = options.zero_stage == 1 ? 1 : micro_steps;
  return times * once(Operation::kReduceScatter);
}

}  // namespace

StepTraffic StepTrafficOf(std::span<const int64_t> tensors,
                          const StatesOptions& options, int64_t micro_steps) {
  const ShardPlan plan = ShardPlanOf(tensors, options);
  if (micro_steps < 1) {
    throw collectives::InvalidArgument("micro_steps is " +
                                       std::to_string(micro_steps) +
                                       ", expected 1 or more");
  }
  const ElementBytes size = BytesOf(options.precision, options.optimizer);
  const int stage = options.zero_stage;
  StepTraffic traffic;
  traffic.gradients = SentOfGradients(tensors, options, micro_steps);
  if (stage == 1) {
    traffic.gradients_by_reduce_scatter =
        SentOfBuckets(Operation::kReduceScatter, tensors, options);
  }
  if (stage == 1 || stage == 2) {
    traffic.parameters = SentOfShards(plan, options, size.parameter);
    traffic.optimizer_state_instead =
        SentOfShards(plan, options, size.optimizer);
  }
  if (stage == 3) {
    traffic.parameters =
        2 * micro_steps * SentOfShards(plan, options, size.parameter);
  }
  return traffic;
}

}  // namespace trainsys
