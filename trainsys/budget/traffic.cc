#include "trainsys/budget/traffic.h"

#include <string>
#include <vector>

#include "collectives/call.h"
#include "collectives/errors.h"
#include "trainsys/ddp/bucket_plan.h"
#include "trainsys/tensor/flat_layout.h"

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

int64_t SentOfGradients(Operation operation, std::span<const int64_t> tensors,
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

}  // namespace

StepTraffic StepTrafficOf(std::span<const int64_t> tensors,
                          const StatesOptions& options, int64_t micro_steps) {
  OwnedShard(tensors, options);  // checks both
  if (micro_steps < 1) {
    throw collectives::InvalidArgument("micro_steps is " +
                                       std::to_string(micro_steps) +
                                       ", expected 1 or more");
  }
  const ElementBytes size = BytesOf(options.precision, options.optimizer);
  const int64_t elems = LayOut(tensors, size.parameter).elems;
  const auto gathered = [&](int64_t elem_bytes) {
    return Sent(Operation::kAllGather, elems * elem_bytes, options.ranks);
  };
  const int stage = options.zero_stage;
  const int64_t scattered =
      SentOfGradients(Operation::kReduceScatter, tensors, options);
  StepTraffic traffic;
  traffic.gradients =
      stage < 2 ? SentOfGradients(Operation::kAllReduce, tensors, options)
                : micro_steps * scattered;
  if (stage == 1) traffic.gradients_by_reduce_scatter = scattered;
  if (stage == 1 || stage == 2) {
    traffic.parameters = gathered(size.parameter);
    traffic.optimizer_state_instead = gathered(size.optimizer);
  }
  if (stage == 3)
    traffic.parameters = 2 * micro_steps * gathered(size.parameter);
  return traffic;
}

}  // namespace trainsys
