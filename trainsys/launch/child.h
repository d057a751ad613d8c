// One process that was started, with its output in pipes.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainsys/launch/line_forwarder.h"

namespace trainsys {

// Owns a file descriptor; -1 is none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { Close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

// A pipe that no program started from here inherits.
// Errors: Error where the system has no more.
Pipe MakePipe();

// Reads of this descriptor return at once.
void SetNonBlocking(const UniqueFd& fd);

// A child's stdout or stderr, on its way to ours.
class Stream {
 public:
  Stream(UniqueFd fd, int target, std::string prefix);

  const UniqueFd& fd() const { return fd_; }
  int target() const { return target_; }  // our descriptor: 1 or 2

  // Result: the whole lines that have come. Closes at the end of the stream.
  // Blocks: no.
  std::string TryRead();

  // Result: what is left in the pipe, at most about 1 MiB: another process may
  // hold it open and go on writing. Closes.
  std::string Drain();

 private:
  UniqueFd fd_;
  int target_;
  LineForwarder lines_;
};

// A process that ends with us, whatever ends us. It has a process group of its
// own: Ctrl-C reaches us only, and what we do about it reaches the process.
//
// Threads: the one that made it, which must live as long as the child may: the
// kernel kills the child when that thread ends.
class Child {
 public:
  // Starts command[0] (a path) with exactly this environment ("NAME=value"),
  // /dev/null as its stdin and default dispositions for `reset_signals`.
  // Blocks: until the program runs.
  // Errors: InvalidArgument if it cannot be executed; Error if the system has
  // no process or descriptor left.
  Child(int rank, const std::vector<std::string>& command,
        const std::vector<std::string>& environment,
        const std::vector<int>& reset_signals);
  Child(Child&& other) noexcept;
  // Kills the process if it still runs, and waits for its end.
  ~Child();

  int rank() const { return rank_; }
  bool is_running() const { return pid_ > 0 && !status_; }
  // As waitpid tells it. Only of a process that has ended.
  int status() const { return status_.value(); }
  std::array<Stream, 2>& streams() { return streams_; }

  void Signal(int signal) const;

  // Whether the process is found to have ended by this call.
  bool TryReap();

 private:
  int rank_;
  std::array<Stream, 2> streams_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

}  // namespace trainsys
