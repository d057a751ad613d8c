// A program that answers lines with lines.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace trainsys {

// Threads: one at a time.
class LineProcess {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Starts command[0], found as a shell finds it, with this process's
  // environment, in a process group of its own: a Ctrl-C of the terminal does
  // not reach it. What it says on stderr goes to `errors`.
  // Errors: Error if it cannot be started.
  LineProcess(const std::vector<std::string>& command,
              std::filesystem::path errors);
  // Kills it, and waits for its end.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // Both: Errors: Error with the last line of its stderr, if it has ended;
  // Error at the deadline.
  void Send(const std::string& line);
  // Without its end.
  std::string Receive(Deadline deadline);

 private:
  [[noreturn]] void ThrowEnded() const;

  const std::filesystem::path errors_;
  int socket_ = -1;  // its stdin and stdout
  pid_t pid_ = -1;
  std::string received_;
};

}  // namespace trainsys
