#include "trainsys/zero/step_in_backward.h"

#include <utility>

#include "collectives/errors.h"
#include "trainsys/ddp/bucket_shards.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {

using collectives::Communicator;
using collectives::Error;
using collectives::InvalidArgument;
using collectives::Work;

StepInBackward::StepInBackward(BucketedDDP& ddp, Communicator& comm,
                               const OptimizerOptions& options)
    : StepInBackward(ddp, comm,
                     std::vector<ParameterGroup>{{ddp.planned(), options}}) {}

StepInBackward::StepInBackward(BucketedDDP& ddp, Communicator& comm,
                               std::vector<ParameterGroup> groups)
    : ddp_(ddp),
      comm_(comm.Duplicate("zero")),
      following_(ddp, *this),
      local_(ddp.planned(), std::move(groups), ddp.shard_plan(), comm.rank()) {}

// While its members still live.
StepInBackward::~StepInBackward() { ddp_.Unfollow(); }

StepInBackward::Following::Following(BucketedDDP& ddp,
                                     BackwardFollower& follower)
    : ddp_(ddp) {
  ddp_.Follow(follower);
}

void StepInBackward::OnReduced(std::span<const size_t> parameters) {
  try {
    for (size_t p : parameters) {
      if (local_.flat().IsInPlace(p)) continue;
      throw InvalidArgument(
          "a parameter was given other data between BeginForward and Step; "
          "expected that after Step");
    }
    local_.Update(
        parameters,
        [this](size_t p, int64_t begin, int64_t elems) {
          return ddp_.ReducedGradient(p, begin, elems);
        },
        1);
  } catch (...) {
    // Not from here: this rank, too, has to post what the others post.
    if (!error_) error_ = std::current_exception();
  }
  // First: from the post on, others may write.
  for (size_t p : parameters) MarkWritten(local_.parameters()[p]);
  for (const OwnedRange& range : OwnersOf(parameters, plan())) {
    works_.push_back(
        comm_->StartBroadcast(local_.flat().Part(range.begin, range.bytes),
                              range.owner, "parameters"));
  }
}

void StepInBackward::BeforeForward() {
  AwaitParameters();
  local_.CheckOptions();  // before anything is sent
  local_.TakeBack();
}

void StepInBackward::AwaitParameters() {
  std::vector<Work> works = std::exchange(works_, {});
  for (Work& work : works) work.Wait();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void StepInBackward::StepScaled(double gradient_scale) {
  if (gradient_scale != 1) {
    throw Error(
        "a step with scaled gradients, but they were used inside backward; "
        "expected ZeROOptimizer, which steps after it");
  }
  AwaitParameters();
}

double StepInBackward::GradNorm() {
  throw Error(
      "the gradients' norm, for clipping or loss scaling, but they were used "
      "inside backward; expected ZeROOptimizer, which steps after it");
}

}  // namespace trainsys
