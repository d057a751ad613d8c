#include "trainsys/autograd/saved_tensor_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>
#include <utility>

namespace trainsys {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

// Written and read by its own thread only; null outside all scopes.
thread_local const SavedTensorHookScope* innermost_scope = nullptr;

class HookedEngine final : public Engine {
 public:
  // Never destroyed: other threads may still run backward at exit.
  static Engine& Get() {
    static auto* const engine = new HookedEngine;
    return *engine;
  }

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks()
      override {
    return innermost_scope == nullptr ? nullptr : innermost_scope->factory()();
  }
};

void InstallEngineOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    torch::autograd::set_default_engine_stub(&HookedEngine::Get);
  });
}

}  // namespace

SavedTensorHookScope::SavedTensorHookScope(SavedTensorHookFactory factory)
    : factory_(std::move(factory)), outer_(innermost_scope) {
  InstallEngineOnce();
  innermost_scope = this;
}

SavedTensorHookScope::~SavedTensorHookScope() { innermost_scope = outer_; }

OutsideHookScope::OutsideHookScope(const SavedTensorHookScope& scope)
    : innermost_(innermost_scope) {
  innermost_scope = scope.outer_;
}

OutsideHookScope::~OutsideHookScope() { innermost_scope = innermost_; }

}  // namespace trainsys
