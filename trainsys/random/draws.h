// Which generators a stretch of code draws random numbers from, so that it can
// run again with the same numbers. What draws nothing costs nothing.
//
// Example:
//   Draws draws;
//   { const DrawScope scope(draws); y = dropout(x); }
//   { const ReplayScope replay(generator, draws); same = dropout(x); }
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "trainsys/random/rank_generator.h"

namespace trainsys {

// Generators, each with the state that it had when it was noted.
// Threads: one at a time. Cost: about 5 KiB and 1 us a generator.
class Draws {
 public:
  // Keeps the generator's present state, unless it has been noted already.
  void Note(const at::Generator& generator);

  // Keeps the present state of every generator noted so far instead.
  void Renew();

  // Puts every generator into the state kept here. Counts as drawing from it
  // for the scopes below.
  void Restore() const;

  bool empty() const { return draws_.empty(); }

 private:
  struct Draw {
    at::Generator generator;
    at::Tensor state;
  };

  std::vector<Draw> draws_;
};

// While it lives, every generator that the thread's operations draw from is
// noted in `draws` before its first number is drawn: one named by the call,
// the thread's RankGeneratorScope's, or libtorch's own.
// Threads: construct and destroy on the same thread; `draws` outlives it.
class DrawScope {
 public:
  // Whether the scopes around it note the same draws.
  enum class Reach { kOuterToo, kThisOnly };

  explicit DrawScope(Draws& draws, Reach reach = Reach::kOuterToo);
  ~DrawScope();
  DrawScope(const DrawScope&) = delete;
  DrawScope& operator=(const DrawScope&) = delete;

 private:
  friend void NoteDraw(const at::Generator& generator);

  Draws& draws_;
  const Reach reach_;
  DrawScope* const outer_;
  const RankGeneratorScope mode_;  // operations are seen only inside one
};

// While it lives, the thread draws from `generator` where none is named, and
// every generator in `draws` goes on from the state noted there. At its end all
// that were drawn from are as they were before it.
class ReplayScope {
 public:
  ReplayScope(const at::Generator& generator, const Draws& draws);
  ~ReplayScope();
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;

 private:
  const RankGeneratorScope generator_;
  Draws found_;
  const DrawScope scope_;
};

// An operation of this thread is about to draw from `generator`. Called by the
// fallback that sees all operations.
void NoteDraw(const at::Generator& generator);

}  // namespace trainsys
