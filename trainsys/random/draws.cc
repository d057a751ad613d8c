#include "trainsys/random/draws.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace trainsys {
namespace {

// Written and read by its own thread only; null outside all scopes.
thread_local DrawScope* innermost_scope = nullptr;

at::Tensor StateOf(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

void Draws::Note(const at::Generator& generator) {
  const bool is_noted = std::any_of(
      draws_.begin(), draws_.end(),
      [&](const Draw& draw) { return draw.generator == generator; });
  if (!is_noted) draws_.push_back({generator, StateOf(generator)});
}

void Draws::Renew() {
  for (Draw& draw : draws_) draw.state = StateOf(draw.generator);
}

void Draws::Restore() const {
  for (const Draw& draw : draws_) {
    NoteDraw(draw.generator);
    at::Generator generator = draw.generator;
    const std::lock_guard lock(generator.mutex());
    generator.set_state(draw.state);
  }
}

DrawScope::DrawScope(Draws& draws, Reach reach)
    : draws_(draws),
      reach_(reach),
      outer_(std::exchange(innermost_scope, this)),
      mode_(CurrentGenerator()) {}

DrawScope::~DrawScope() { innermost_scope = outer_; }

ReplayScope::ReplayScope(const at::Generator& generator, const Draws& draws)
    : generator_(generator), scope_(found_, DrawScope::Reach::kThisOnly) {
  draws.Restore();  // noted in found_ first
}

ReplayScope::~ReplayScope() { found_.Restore(); }

void NoteDraw(const at::Generator& generator) {
  for (DrawScope* scope = innermost_scope; scope != nullptr;
       scope = scope->outer_) {
    scope->draws_.Note(generator);
    if (scope->reach_ == DrawScope::Reach::kThisOnly) return;
  }
}

}  // namespace trainsys
