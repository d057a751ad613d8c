#include "trainsys/random/rank_generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <cstddef>
#include <utility>

#include "trainsys/random/draws.h"
#include "trainsys/random/splitmix64.h"

// The C++ modules of libtorch pass no generator. The one place where all
// operations pass is the dispatcher, so a boxed fallback on a mode key fills
// the empty `Generator?` argument there, and tells who draws from what. The key
// is named TESTING_ONLY; this file is the only one that knows it.

namespace trainsys {
namespace {

constexpr c10::DispatchKey kMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

// Written and read by its own thread only. Undefined outside all scopes.
thread_local at::Generator thread_generator;

bool IsOptionalGenerator(const c10::Argument& argument) {
  const auto* optional = argument.type()->castRaw<c10::OptionalType>();
  return optional != nullptr &&
         optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

void FillGenerator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (value.isNone() && thread_generator.defined() &&
        IsOptionalGenerator(arguments[i])) {
      value = thread_generator;
    }
    if (value.isGenerator()) NoteDraw(value.toGenerator());
  }
  // Only this call skips the key. Excluding it for the call's extent would
  // hide the bernoulli_ inside native_dropout, which has no such argument.
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kMode),
      stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&FillGenerator>());
}

at::Generator MakeRankGenerator(uint64_t seed, int64_t step, int rank) {
  const uint64_t mixed =
      SplitMix64::Mix(SplitMix64::Mix(seed, static_cast<uint64_t>(step)),
                      static_cast<uint64_t>(rank));
  return at::make_generator<at::CPUGeneratorImpl>(mixed);
}

RankGeneratorScope::RankGeneratorScope(at::Generator generator)
    : previous_(std::exchange(thread_generator, std::move(generator))),
      mode_(kMode) {}

RankGeneratorScope::~RankGeneratorScope() {
  thread_generator = std::move(previous_);
}

at::Generator CurrentGenerator() {
  return thread_generator.defined() ? thread_generator
                                    : at::detail::getDefaultCPUGenerator();
}

}  // namespace trainsys
