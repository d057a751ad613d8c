// Results that a checkpointed segment keeps instead of computing them twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "trainsys/recompute/for_each_tensor.h"

namespace trainsys {

// A value apart from the tensors inside it.
struct ResultParts {
  std::any frame;
  std::vector<at::Tensor> tensors;
};

// Whether this thread is inside a checkpointed segment, in any of its runs.
bool IsInSegment();

// Runs `fn` in first runs, and gives its result again in second ones.
ResultParts KeepParts(const std::function<ResultParts()>& fn);

// Returns fn(). Inside a checkpointed segment fn runs in the first run only;
// the result is kept, and second runs get it again. For what must not happen
// twice, a collective above all, and for what costs more time than memory.
//
// Result: copyable; the tensors inside (VisitTensors says which are seen) are
//   kept as saved tensors, so that enclosing scopes count them. In a second run
//   they are detached, and require a gradient where they did.
// Gradients: operations inside fn save for backward as outside the segment.
// Random numbers: generators that fn draws from are in second runs as fn has
//   left them.
// Threads: the segment's own. Outside all segments this is just fn().
// Errors: what fn throws. collectives::Error out of backward() where a second
//   run calls it more or less often than the first; libtorch's error where a
//   kept tensor has been changed in place.
//
// Example:
//   sum = KeepInSegment([&] { return AllReduced(comm, partial); });
template <typename Fn>
auto KeepInSegment(Fn fn) {
  using Result = std::decay_t<std::invoke_result_t<Fn&>>;
  static_assert(std::is_copy_constructible_v<Result>,
                "KeepInSegment keeps what fn returns: let it return a value "
                "that can be copied");
  if (!IsInSegment()) return Result(std::invoke(fn));
  ResultParts parts = KeepParts([&fn] {
    Result result = std::invoke(fn);
    ResultParts taken;
    taken.tensors = TakeTensors(result);
    taken.frame = std::move(result);
    return taken;
  });
  Result result = std::any_cast<Result>(std::move(parts.frame));
  PutTensors(result, parts.tensors);
  return result;
}

}  // namespace trainsys
