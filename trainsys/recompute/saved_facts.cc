#include "trainsys/recompute/saved_facts.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {

SavedFacts::SavedFacts(const at::Tensor& t, SecondRunCheck check)
    : sizes(t.sizes().vec()), dtype(t.scalar_type()) {
  if (check == SecondRunCheck::kShapes) return;
  const c10::NoGradGuard no_grad;
  hash = HashOf({t});
}

std::string Describe(const SavedFacts& facts) {
  std::string text = fmt::format("[{}] {}", fmt::join(facts.sizes, ", "),
                                 c10::toString(facts.dtype));
  if (facts.hash) text += fmt::format(" with the bits {:016x}", *facts.hash);
  return text;
}

}  // namespace trainsys
