#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

namespace trainsys {

// libtorch's default CPU generator is one for the whole process: rank threads
// that draw from it get numbers that depend on each other's timing. Here each
// rank thread brings its own generator, and every random operation of the
// thread uses it: nn::init, nn::Dropout, randn, in modules that know nothing
// of ranks.
//
//     RankGeneratorScope scope(MakeRankGenerator(seed, step, rank));
//     auto y = model->Forward(x);  // Dropout draws from this rank's numbers

// A CPU generator for (seed, step, rank), well mixed: neighbouring seeds,
// steps and ranks have unrelated numbers.
// Threads: any thread.
// Limit: libtorch's CPU engine takes 32 bits of seed, so that two of 64 ranks
// of one step share a stream with probability 5e-7.
at::Generator MakeRankGenerator(uint64_t seed, int64_t step, int rank);

// While it lives, the constructing thread's random operations that name no
// generator draw from `generator`, giving the numbers that
// torch::manual_seed with the same seed would give. Scopes nest.
//
// Threads: construct and destroy on the same thread. A backward pass runs on
// the thread that calls it and so draws from that thread's scope; autograd
// moves work to threads of its own only beyond 60 nested backward calls.
// Cost: not measurable beside an operation (at::add of 64 x 256: 3.4-3.9 us
// without, 3.4-4.2 us with).
class RankGeneratorScope {
 public:
  explicit RankGeneratorScope(at::Generator generator);
  ~RankGeneratorScope();
  RankGeneratorScope(const RankGeneratorScope&) = delete;
  RankGeneratorScope& operator=(const RankGeneratorScope&) = delete;

 private:
  at::Generator previous_;
  c10::impl::IncludeDispatchKeyGuard mode_;
};

// The generator that the calling thread's random operations draw from: its
// innermost scope's, or libtorch's default CPU generator.
// Use: take and restore its state around a region that is computed twice.
at::Generator CurrentGenerator();

}  // namespace trainsys
