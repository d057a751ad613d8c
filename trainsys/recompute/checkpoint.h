// Activation recomputation: trade the memory of a segment's saved tensors for
// running the segment a second time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "collectives/recomputing.h"  // IsRecomputing: part of this API

namespace trainsys {

using collectives::IsRecomputing;

using CheckpointFunction =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Returns fn(inputs). Of what fn's operations save for backward only `inputs`
// are kept; the first time backward asks for one of the others, fn runs again
// on the same inputs and the same random numbers.
//
// Result: the bits that fn(inputs) would have given, in forward and in every
//   gradient. Parameters that fn captures are ordinary inputs of an ordinary
//   graph: their gradients are accumulated once and their hooks run once,
//   also where a segment is used several times, and whether or not an input
//   requires a gradient. Segments nest to any depth.
// fn: must compute the same both times; it asks IsRecomputing() where it must
//   not act twice. It is kept, with what it captures, until the graph goes.
// Random numbers: those of CurrentGenerator() are drawn again in the second
//   run, and the generator is then as it was before it. Where several ranks
//   run, each needs a RankGeneratorScope for that: libtorch's own generator is
//   one for the process, and others would draw from it in between.
// Cost: one more run of fn; the inputs and a generator state (5 KiB) until
//   backward. During backward the segment's saved tensors exist one segment at
//   a time, each until its node is done; after backward(retain_graph) they
//   stay, as those of a plain graph do, and a further backward recomputes
//   nothing. With gradients switched off this is just fn(inputs).
// Threads: backward may run on any thread; fn runs again on that thread.
// Errors: what fn throws, as itself; out of backward() where the second run
//   throws. collectives::Error out of backward() where the second run saves
//   other tensors (number, shape, dtype) than the first, and where backward
//   is run inside fn through the segment itself. libtorch's own error where an
//   input, a parameter or a saved tensor was changed in place in between.
// Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost";
//   the design is that of PyTorch's non-reentrant checkpoint.
//
// Example:
//   y = Checkpoint([&](const at::Tensor& t) { return block->forward(t); }, x);
std::vector<at::Tensor> Checkpoint(CheckpointFunction fn,
                                   const std::vector<at::Tensor>& inputs);

at::Tensor Checkpoint(std::function<at::Tensor(const at::Tensor&)> fn,
                      const at::Tensor& input);

}  // namespace trainsys
