// The signals that concern whoever looks after processes, as something to poll.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

#include "trainsys/launch/child.h"

namespace trainsys {

// While it lives, SIGCHLD, SIGINT, SIGTERM and SIGHUP become bytes of a pipe;
// the last three stay ignored where they are. Handlers rather than a signalfd,
// which would need the signals blocked in every thread of the process.
//
// Threads: one at a time, and one such object at a time in a process.
class SignalPipe {
 public:
  // Errors: Error where the system has no pipe left.
  SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  ~SignalPipe();

  // Readable when there are signals.
  int fd() const { return pipe_.read_end.get(); }

  const std::vector<int>& taken() const { return taken_; }

  // Result: the signals since the last call, one a byte, as they came.
  // Blocks: no.
  std::string TryRead() const;

 private:
  void Take(int signal);

  Pipe pipe_;
  std::vector<int> taken_;
  std::vector<struct sigaction> before_;  // of taken_
};

}  // namespace trainsys
