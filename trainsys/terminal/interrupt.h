// Ctrl-C, for programs that finish what they can.
#pragma once

#include <exception>

namespace trainsys {

// While it lives, the first SIGINT, SIGTERM or SIGHUP is only noted; a second
// one ends the process at once, with 128 + its number. One that the process
// ignored stays ignored. Where stderr is a terminal, a line there says so.
// Threads: one such object at a time in a process.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

// The signal that was noted, or 0. Threads: any.
int InterruptSignal();

// What leaves a program that was asked to stop; its exit code is 128 +
// signal().
class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal) : signal_(signal) {}
  int signal() const { return signal_; }
  const char* what() const noexcept override { return "interrupted"; }

 private:
  const int signal_;
};

// Throws Interrupted if a signal was noted. Call: between two parts of
// something long.
void ThrowIfInterrupted();

}  // namespace trainsys
