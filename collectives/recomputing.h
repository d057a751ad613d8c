// Tells code that runs twice, in forward and again in a recomputed segment,
// which of the two it is in. Here, below all that recomputes, because the
// collectives of a second run are recorded and matched as such.
#pragma once

namespace collectives {

// True while a segment runs again for backward, on the thread that runs it.
// Code with effects beyond its result (counters, running statistics) asks it.
// Threads: any thread; the answer is that thread's own.
bool IsRecomputing();

// Marks its lifetime as recomputation. Nests.
class RecomputingScope {
 public:
  RecomputingScope();
  ~RecomputingScope();
  RecomputingScope(const RecomputingScope&) = delete;
  RecomputingScope& operator=(const RecomputingScope&) = delete;
};

// Marks its lifetime as no recomputation, whatever is around it: for what only
// happens to run in a second run.
class NotRecomputingScope {
 public:
  NotRecomputingScope();
  ~NotRecomputingScope();
  NotRecomputingScope(const NotRecomputingScope&) = delete;
  NotRecomputingScope& operator=(const NotRecomputingScope&) = delete;

 private:
  const int depth_;  // around it
};

}  // namespace collectives
