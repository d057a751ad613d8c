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
        NameOf(owner.segment_.options()) +
        ": the function ran backward on its own result while it was "
        "recomputed; this is not supported");
  }
  SavedAgain& owner;  // alive whenever something is packed
};

SavedAgain::SavedAgain(Segment& segment)
    : segment_(segment),
      scope_([this] { return std::make_unique<Hooks>(*this); }) {}

std::vector<SavedVariable> SavedAgain::Finish() {
  if (tensors_.size() == segment_.facts().size()) return std::move(tensors_);
  throw collectives::Error(fmt::format(
      "{}: recomputation saved {} tensors, the forward saved {}; {}",
      NameOf(segment_.options()), tensors_.size(), segment_.facts().size(),
      kHint));
}

void SavedAgain::Record(const at::Tensor& t) {
  CheckNext(t);
  const OutsideHookScope outside(scope_);
  tensors_.push_back(segment_.IsNeeded(tensors_.size())
                         ? SavedVariable(t.detach(), /*is_output=*/false)
                         : SavedVariable());
}

void SavedAgain::CheckNext(const at::Tensor& t) const {
  const size_t index = tensors_.size();
  const std::vector<SavedFacts>& facts = segment_.facts();
  const SavedFacts is(t, segment_.options().check);
  if (index >= facts.size()) {
    throw collectives::Error(fmt::format(
        "{}: recomputation saves more tensors than the {} of the forward, the "
        "first one {}; {}",
        NameOf(segment_.options()), facts.size(), Describe(is), kHint));
  }
  const SavedFacts& was = facts[index];
  if (is == was) return;
  throw collectives::Error(fmt::format(
      "{}: saved tensor {} (from 0, of {}) is {} in recomputation and was {} "
      "in the forward; {}",
      NameOf(segment_.options()), index, facts.size(), Describe(is),
      Describe(was), kHint));
}

}  // namespace trainsys
