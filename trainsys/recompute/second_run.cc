#include "trainsys/recompute/second_run.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <utility>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using torch::autograd::SavedVariable;

constexpr char kHint[] =
    "the function must compute the same each time (globals, data-dependent "
    "branches, tensors changed in between)";

}  // namespace

struct SavedAgain::Hooks final : torch::autograd::SavedVariableHooks {
  explicit Hooks(SavedAgain& owner) : owner(owner) {}
  void call_pack_hook(const at::Tensor& t) override { owner.Record(t); }
  at::Tensor call_unpack_hook() override {
    throw collectives::Error(
        NameOf(owner.options_) +
        ": the function ran backward on its own result while it was "
        "recomputed; this is not supported");
  }
  SavedAgain& owner;  // alive whenever something is packed
};

SavedAgain::SavedAgain(const std::vector<Segment::Saved>& expected,
                       const CheckpointOptions& options)
    : expected_(expected),
      options_(options),
      scope_([this] { return std::make_unique<Hooks>(*this); }) {}

std::vector<SavedVariable> SavedAgain::Finish() {
  if (tensors_.size() == expected_.size()) return std::move(tensors_);
  throw collectives::Error(fmt::format(
      "{}: recomputation saved {} tensors, the forward saved {}; {}",
      NameOf(options_), tensors_.size(), expected_.size(), kHint));
}

void SavedAgain::Record(const at::Tensor& t) {
  CheckNext(t);
  const OutsideHookScope outside(scope_);
  tensors_.push_back(expected_[tensors_.size()].is_needed
                         ? SavedVariable(t.detach(), /*is_output=*/false)
                         : SavedVariable());
}

void SavedAgain::CheckNext(const at::Tensor& t) const {
  const size_t index = tensors_.size();
  const SavedFacts is(t, options_.check);
  if (index >= expected_.size()) {
    throw collectives::Error(fmt::format(
        "{}: recomputation saves more tensors than the {} of the forward, the "
        "first one {}; {}",
        NameOf(options_), expected_.size(), Describe(is), kHint));
  }
  const SavedFacts& was = expected_[index].facts;
  if (is == was) return;
  throw collectives::Error(fmt::format(
      "{}: saved tensor {} (from 0, of {}) is {} in recomputation and was {} "
      "in the forward; {}",
      NameOf(options_), index, expected_.size(), Describe(is), Describe(was),
      kHint));
}

}  // namespace trainsys
