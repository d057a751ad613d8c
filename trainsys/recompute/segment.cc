#include "trainsys/recompute/segment.h"

#include <utility>

#include "collectives/errors.h"
#include "collectives/recomputing.h"
#include "trainsys/recompute/second_run.h"
#include "trainsys/recompute/segment_run.h"

namespace trainsys {

using torch::autograd::SavedVariable;

KeptTensor::KeptTensor(const at::Tensor& t)
    : saved_(t.defined() ? t.detach() : t, /*is_output=*/false),
      requires_grad_(t.defined() && t.requires_grad()) {}

at::Tensor KeptTensor::Fetch() const {
  at::Tensor t = saved_.unpack();
  if (t.defined()) t = t.detach().set_requires_grad(requires_grad_);
  return t;
}

Segment::Segment(CheckpointOptions options,
                 const std::vector<at::Tensor>& inputs, FirstRun::Again again)
    : options_(std::move(options)),
      again_(std::move(again)),
      memory_(CurrentAccount()),
      generator_(CurrentGenerator()),
      inputs_(inputs.begin(), inputs.end()) {}

size_t Segment::Drop(const at::Tensor& t) {
  saved_.push_back({SavedFacts(t, options_.check), true, SavedVariable()});
  return saved_.size() - 1;
}

void Segment::Keep(const KeptResult& result) {
  const std::vector<at::Tensor>& tensors = result.parts.tensors;
  results_.push_back(
      {result.parts.frame, {tensors.begin(), tensors.end()}, result.draws});
}

void Segment::EndFirstRun() {
  const std::lock_guard lock(mutex_);
  has_first_run_ended_ = true;
}

at::Tensor Segment::Get(size_t index) {
  if (!IsRecomputed()) {
    // Fetched without the lock: in nested segments this recomputes the
    // enclosing one, and no thread holds the locks of all of them.
    Fetched fetched = FetchKept();
    const std::lock_guard lock(mutex_);
    if (!is_recomputed_) RunAgain(std::move(fetched));
  }
  const std::lock_guard lock(mutex_);
  return saved_[index].tensor.unpack();
}

bool Segment::IsRecomputed() {
  const std::lock_guard lock(mutex_);
  if (has_first_run_ended_) return is_recomputed_;
  throw collectives::Error(
      NameOf(options_) +
      ": the function ran backward through the segment before it returned; "
      "this is not supported");
}

void Segment::Release(size_t index) {
  SavedVariable released;  // freed after the lock
  const std::lock_guard lock(mutex_);
  saved_[index].is_needed = false;
  released = std::move(saved_[index].tensor);
}

Segment::Fetched Segment::FetchKept() const {
  Fetched fetched;
  for (const KeptTensor& input : inputs_) {
    fetched.inputs.push_back(input.Fetch());
  }
  for (const Stored& stored : results_) {
    KeptResult result{{stored.frame, {}}, stored.draws};
    for (const KeptTensor& kept : stored.tensors) {
      result.parts.tensors.push_back(kept.Fetch());
    }
    fetched.results.push_back(std::move(result));
  }
  return fetched;
}

void Segment::RunAgain(Fetched fetched) {
  std::vector<SavedVariable> tensors;
  {
    const collectives::RecomputingScope recomputing;
    const LedgerScope memory(memory_);
    const ForwardStateScope state(state_);
    const ReplayScope replay(generator_, draws_);
    SavedAgain saved_again(saved_, options_);
    SegmentRun run(std::move(fetched.results), options_);
    again_(fetched.inputs);
    run.Finish();
    tensors = saved_again.Finish();
  }
  for (size_t i = 0; i < saved_.size(); ++i) {
    saved_[i].tensor = std::move(tensors[i]);
  }
  is_recomputed_ = true;
}

std::string NameOf(const CheckpointOptions& options) {
  if (options.label.empty()) return "Checkpoint";
  return "Checkpoint '" + options.label + "'";
}

}  // namespace trainsys
