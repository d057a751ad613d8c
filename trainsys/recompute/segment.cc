#include "trainsys/recompute/segment.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "collectives/errors.h"
#include "trainsys/autograd/saved_tensor_hooks.h"
#include "trainsys/random/rank_generator.h"

namespace trainsys {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::SavedVariableHooks;

at::Tensor StateOf(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

// Makes the thread draw from `generator` as it was in `state`, then puts back
// both the thread's generator and the state that was found.
class ReplayedGenerator {
 public:
  ReplayedGenerator(at::Generator generator, const at::Tensor& state)
      : generator_(std::move(generator)), found_(StateOf(generator_)) {
    if (!(generator_ == CurrentGenerator())) scope_.emplace(generator_);
    Set(state);
  }
  ~ReplayedGenerator() { Set(found_); }
  ReplayedGenerator(const ReplayedGenerator&) = delete;
  ReplayedGenerator& operator=(const ReplayedGenerator&) = delete;

 private:
  void Set(const at::Tensor& state) {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state);
  }

  at::Generator generator_;
  const at::Tensor found_;
  std::optional<RankGeneratorScope> scope_;
};

std::string Describe(at::IntArrayRef sizes, at::ScalarType dtype) {
  return fmt::format("[{}] {}", fmt::join(sizes.begin(), sizes.end(), ", "),
                     c10::toString(dtype));
}

constexpr char kHint[] =
    "the function must compute the same both times (random numbers, globals, "
    "data-dependent branches)";

}  // namespace

// Takes the second run's saved tensors, in order, and compares each with what
// the first run dropped. The second graph itself is never run.
class Segment::Recorder {
 public:
  explicit Recorder(const std::vector<Saved>& expected)
      : expected_(expected),
        scope_([this] { return std::make_unique<Hooks>(*this); }) {}

  // Errors: collectives::Error where the second run saved too few.
  std::vector<SavedVariable> Finish() {
    if (tensors_.size() == expected_.size()) return std::move(tensors_);
    throw collectives::Error(fmt::format(
        "Checkpoint: recomputation saved {} tensors, the forward saved {}; {}",
        tensors_.size(), expected_.size(), kHint));
  }

 private:
  struct Hooks final : SavedVariableHooks {
    explicit Hooks(Recorder& recorder) : recorder(recorder) {}
    void call_pack_hook(const at::Tensor& t) override { recorder.Record(t); }
    at::Tensor call_unpack_hook() override {
      throw collectives::Error(
          "Checkpoint: the function ran backward on its own result while it "
          "was recomputed; this is not supported");
    }
    Recorder& recorder;  // alive whenever something is packed
  };

  void Record(const at::Tensor& t) {
    const size_t index = tensors_.size();
    if (index >= expected_.size()) {
      throw collectives::Error(fmt::format(
          "Checkpoint: recomputation saves more tensors than the {} of the "
          "forward, the first one {}; {}",
          expected_.size(), Describe(t.sizes(), t.scalar_type()), kHint));
    }
    const Saved& want = expected_[index];
    if (t.sizes() != want.sizes || t.scalar_type() != want.dtype) {
      throw collectives::Error(fmt::format(
          "Checkpoint: saved tensor {} is {} in recomputation and was {} in "
          "the forward; {}",
          index, Describe(t.sizes(), t.scalar_type()),
          Describe(want.sizes, want.dtype), kHint));
    }
    const OutsideHookScope outside(scope_);
    tensors_.push_back(want.is_needed ? SavedVariable(t.detach(), false)
                                      : SavedVariable());
  }

  const std::vector<Saved>& expected_;
  std::vector<SavedVariable> tensors_;
  const SavedTensorHookScope scope_;
};

Segment::Segment(CheckpointFunction fn, const std::vector<at::Tensor>& inputs)
    : fn_(std::move(fn)),
      generator_(CurrentGenerator()),
      generator_state_(StateOf(generator_)) {
  for (const at::Tensor& x : inputs) {
    // Detached: the inputs' history is the graph's to keep, not ours.
    inputs_.emplace_back(x.defined() ? x.detach() : x, /*is_output=*/false);
    input_requires_grad_.push_back(x.defined() && x.requires_grad());
  }
}

std::vector<at::Tensor> Segment::RunForward(
    const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> outputs = fn_(inputs);
  is_forward_done_ = true;
  return outputs;
}

size_t Segment::Drop(const at::Tensor& t) {
  saved_.push_back({t.sizes().vec(), t.scalar_type(), true, SavedVariable()});
  return saved_.size() - 1;
}

at::Tensor Segment::Get(size_t index) {
  if (!IsRecomputed()) {
    // Fetched without the lock: in nested segments this recomputes the
    // enclosing one, and no thread holds the locks of all of them.
    const std::vector<at::Tensor> inputs = DetachedInputs();
    const std::lock_guard lock(mutex_);
    if (!is_recomputed_) Recompute(inputs);
  }
  const std::lock_guard lock(mutex_);
  return saved_[index].tensor.unpack();
}

bool Segment::IsRecomputed() {
  const std::lock_guard lock(mutex_);
  if (is_forward_done_) return is_recomputed_;
  throw collectives::Error(
      "Checkpoint: the function ran backward through the segment before it "
      "returned; this is not supported");
}

void Segment::Release(size_t index) {
  SavedVariable released;  // freed after the lock
  const std::lock_guard lock(mutex_);
  saved_[index].is_needed = false;
  released = std::move(saved_[index].tensor);
}

std::vector<at::Tensor> Segment::DetachedInputs() const {
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    at::Tensor x = inputs_[i].unpack();
    if (x.defined()) x = x.detach().set_requires_grad(input_requires_grad_[i]);
    inputs.push_back(std::move(x));
  }
  return inputs;
}

void Segment::Recompute(const std::vector<at::Tensor>& inputs) {
  std::vector<SavedVariable> tensors;
  {
    const collectives::RecomputingScope recomputing;
    const ReplayedGenerator replayed(generator_, generator_state_);
    const c10::AutoGradMode enable_grad(true);
    Recorder recorder(saved_);
    fn_(inputs);
    tensors = recorder.Finish();
  }
  for (size_t i = 0; i < saved_.size(); ++i) {
    saved_[i].tensor = std::move(tensors[i]);
  }
  is_recomputed_ = true;
}

}  // namespace trainsys
