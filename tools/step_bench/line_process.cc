#include "tools/step_bench/line_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::Error;

std::string LastLineOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

// Result: 0 or an errno.
int Spawn(const std::vector<std::string>& command, int socket,
          const std::string& errors, pid_t& pid) {
  std::vector<char*> argv;
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error =
      posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

int MillisecondsUntil(LineProcess::Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000));
}

}  // namespace

LineProcess::LineProcess(const std::vector<std::string>& command,
                         std::filesystem::path errors)
    : errors_(std::move(errors)) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw Error(fmt::format("cannot make a socket: {}", std::strerror(errno)));
  }
  socket_ = ends[0];
  const int error = Spawn(command, ends[1], errors_.string(), pid_);
  close(ends[1]);
  if (error == 0) return;
  close(socket_);
  throw Error(
      fmt::format("cannot run {}: {}", command[0], std::strerror(error)));
}

LineProcess::~LineProcess() {
  close(socket_);
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void LineProcess::Send(const std::string& line) {
  const std::string text = line + "\n";
  const ssize_t sent =
      send(socket_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(text.size())) ThrowEnded();
}

std::string LineProcess::Receive(Deadline deadline) {
  for (;;) {
    if (const size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
    const int polled = poll(&ready, 1, MillisecondsUntil(deadline));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) throw Error("no answer within the deadline");
    std::array<char, 4096> bytes;
    const ssize_t got = recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) ThrowEnded();
    received_.append(bytes.data(), static_cast<size_t>(got));
  }
}

void LineProcess::ThrowEnded() const {
  const std::string why = LastLineOf(errors_);
  throw Error(why.empty() ? "it has ended" : "it has ended: " + why);
}

}  // namespace trainsys
