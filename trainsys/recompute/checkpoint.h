// Activation recomputation: trade the memory of a segment's saved tensors for
// running the segment a second time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/recomputing.h"  // IsRecomputing: part of this API
#include "trainsys/recompute/for_each_tensor.h"

namespace trainsys {

using collectives::IsRecomputing;

// What the second run is held against.
enum class SecondRunCheck {
  kShapes,  // number, shapes and dtypes of the saved tensors
  kValues,  // and their bits, as they are when saved: hashes each one twice
};

struct CheckpointOptions {
  std::string label;  // for messages: "block 3"
  SecondRunCheck check = SecondRunCheck::kShapes;
};

// The first run of a segment, for as long as it lives.
class FirstRun {
 public:
  using Again = std::function<void(const std::vector<at::Tensor>& inputs)>;

  FirstRun(CheckpointOptions options, const std::vector<at::Tensor>& inputs,
           Again again);
  ~FirstRun();
  FirstRun(const FirstRun&) = delete;
  FirstRun& operator=(const FirstRun&) = delete;

 private:
  struct Scopes;
  const std::unique_ptr<Scopes> scopes_;
};

// Returns what fn(args...) returns, whatever that is. Of what fn's operations
// save for backward only the tensors inside `args` are kept (VisitTensors says
// which are seen); the first time backward asks for one of the others, fn runs
// again on the same arguments, random numbers and thread-local state.
//
// Result: the bits that fn(args...) would have given, in forward and in every
//   gradient. Parameters that fn captures are ordinary inputs of an ordinary
//   graph: their gradients are accumulated once and their hooks run once,
//   also where a segment is used several times, and whether or not an argument
//   requires a gradient. Segments nest: at depth k, fn runs k + 1 times.
// fn: must compute the same each time; it asks IsRecomputing() where it must
//   not act twice, and wraps in KeepInSegment() what must not run twice. It is
//   kept, with what it captures and with copies of `args`, until it has run
//   again or the graph goes.
// Random numbers: any generator's are drawn again in the second run, and each
//   generator is then as it was before it. Where several ranks run, each needs
//   a RankGeneratorScope: libtorch's own generator is one for the process, and
//   others would draw from it in between.
// Thread-local state: dispatch keys (autocast among them), autograd's modes,
//   the CPU's autocast dtype, what the MemoryLedger books allocations with.
// Cost: one more run of fn; the tensors of `args` until backward, and 5 KiB
//   for each generator that fn draws from. During backward the segment's saved
//   tensors exist one segment at a time, each until its node is done; after
//   backward(retain_graph) they stay, as those of a plain graph do, and a
//   further backward recomputes nothing. With gradients switched off this is
//   just fn(args...).
// Threads: backward may run on any thread; fn runs again on that thread.
// Errors: what fn throws, as itself; out of backward() where the second run
//   throws. collectives::Error out of backward() where the second run saves
//   other tensors than the first, and where backward is run inside fn through
//   the segment itself. libtorch's own error where an argument, or a parameter
//   or other tensor that the first run saved, was changed in place in between,
//   by fn itself or later. What fn reads without saving it (x + p.detach()) may
//   change unseen, but for kValues.
// Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost";
//   the design is that of PyTorch's non-reentrant checkpoint.
//
// Example:
//   y = Checkpoint({.label = "block 3"},
//                  [&](const at::Tensor& t) { return block->forward(t); }, x);
template <typename Fn, typename... Args>
requires std::invocable<Fn&, const Args&...>
auto Checkpoint(CheckpointOptions options, Fn fn, const Args&... args) {
  if (!c10::GradMode::is_enabled()) return std::invoke(fn, args...);
  // Tensors are kept by the segment, not by the copy of the arguments.
  std::tuple<std::decay_t<const Args&>...> frame(args...);
  const std::vector<at::Tensor> inputs = TakeTensors(frame);
  const auto kept = std::make_shared<std::pair<Fn, decltype(frame)>>(
      std::move(fn), std::move(frame));
  const FirstRun run(
      std::move(options), inputs, [kept](const std::vector<at::Tensor>& again) {
        auto filled = kept->second;
        PutTensors(filled, again);
        std::apply(
            [&](const auto&... arg) { std::invoke(kept->first, arg...); },
            filled);
      });
  return std::invoke(kept->first, args...);
}

template <typename Fn, typename... Args>
requires std::invocable<Fn&, const Args&...>
auto Checkpoint(Fn fn, const Args&... args) {
  return Checkpoint(CheckpointOptions{}, std::move(fn), args...);
}

}  // namespace trainsys
