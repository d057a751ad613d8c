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

// The right to run a segment again. Waits for another thread that does, as long
// as it computes.
class Segment::Turn {
 public:
  explicit Turn(Segment& segment) : segment_(segment) {
    const std::thread::id me = std::this_thread::get_id();
    std::unique_lock lock(segment_.mutex_);
    if (segment_.runner_ == me) {
      throw collectives::Error(
          NameOf(segment_.options_) +
          ": the function ran backward through the segment while it was "
          "recomputed; this is not supported");
    }
    segment_.turn_ended_.wait(
        lock, [this] { return segment_.runner_ == std::thread::id(); });
    segment_.runner_ = me;
  }
  ~Turn() {
    {
      const std::lock_guard lock(segment_.mutex_);
      segment_.runner_ = {};
    }
    segment_.turn_ended_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Segment& segment_;
};

Segment::Segment(CheckpointOptions options,
                 const std::vector<at::Tensor>& inputs, FirstRun::Again again)
    : options_(std::move(options)),
      memory_(CurrentMemoryContext()),
      generator_(CurrentGenerator()),
      kept_(std::make_shared<Kept>(
          Kept{std::move(again), {inputs.begin(), inputs.end()}, {}, {}})) {}

size_t Segment::Drop(const at::Tensor& t) {
  facts_.emplace_back(t, options_.check);
  slots_.emplace_back();
  return slots_.size() - 1;
}

void Segment::Keep(const KeptResult& result) {
  const std::vector<at::Tensor>& tensors = result.parts.tensors;
  kept_->results.push_back(
      {result.parts.frame, {tensors.begin(), tensors.end()}, result.draws});
}

void Segment::EndFirstRun() {
  const std::lock_guard lock(mutex_);
  has_first_run_ended_ = true;
}

at::Tensor Segment::Get(size_t index) {
  if (const std::shared_ptr<const Kept> kept = ToRunAgain()) RunAgain(*kept);
  const std::lock_guard lock(mutex_);
  return slots_[index].tensor.unpack();
}

// Null if there is nothing to run.
std::shared_ptr<const Segment::Kept> Segment::ToRunAgain() {
  const std::lock_guard lock(mutex_);
  if (has_first_run_ended_) return kept_;
  throw collectives::Error(
      NameOf(options_) +
      ": the function ran backward through the segment before it returned; "
      "this is not supported");
}

void Segment::Release(size_t index) {
  SavedVariable released;  // freed after the lock
  const std::lock_guard lock(mutex_);
  slots_[index].is_needed = false;
  released = std::move(slots_[index].tensor);
}

bool Segment::IsNeeded(size_t index) {
  const std::lock_guard lock(mutex_);
  return slots_[index].is_needed;
}

Segment::Fetched Segment::Fetch(const Kept& kept) {
  Fetched fetched;
  for (const KeptTensor& input : kept.inputs) {
    fetched.inputs.push_back(input.Fetch());
  }
  for (const Stored& stored : kept.results) {
    KeptResult result{{stored.frame, {}}, stored.draws};
    for (const KeptTensor& tensor : stored.tensors) {
      result.parts.tensors.push_back(tensor.Fetch());
    }
    fetched.results.push_back(std::move(result));
  }
  return fetched;
}

void Segment::RunAgain(const Kept& kept) {
  // Before the turn: in nested segments this runs the enclosing one again, and
  // no thread has the turns of both.
  Fetched fetched = Fetch(kept);
  const Turn turn(*this);
  if (ToRunAgain() == nullptr) return;  // another thread has done it
  std::vector<SavedVariable> tensors =
      SavedOfSecondRun(kept, std::move(fetched));
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].is_needed) slots_[i].tensor = std::move(tensors[i]);
  }
  // What runs no more may hold the graph that holds this. The caller has it
  // still: nothing is destroyed here.
  kept_.reset();
}

std::vector<SavedVariable> Segment::SavedOfSecondRun(const Kept& kept,
                                                     Fetched fetched) {
  const OutsideSegments outside;
  const collectives::RecomputingScope recomputing;
  const MemoryContextScope memory(memory_);
  const ForwardStateScope state(state_);
  const ReplayScope replay(generator_, kept.draws);
  SavedAgain saved_again(*this);
  SegmentRun run(std::move(fetched.results), saved_again.hooks(), options_);
  kept.again(fetched.inputs);
  run.Finish();
  return saved_again.Finish();
}

std::string NameOf(const CheckpointOptions& options) {
  if (options.label.empty()) return "Checkpoint";
  return "Checkpoint '" + options.label + "'";
}

}  // namespace trainsys
