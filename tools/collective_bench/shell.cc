#include "tools/collective_bench/shell.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

#include "collectives/errors.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

// Leads a process group of its own, which `timeout` hands signals on to.
// Result: its id, or -1; `output`: to read from.
pid_t Spawn(const std::string& command, int seconds, int& output) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::string all =
      fmt::format("exec timeout -k 10 {} sh -c {}", seconds, Quoted(command));
  std::array<char*, 4> argv{const_cast<char*>("sh"), const_cast<char*>("-c"),
                            all.data(), nullptr};
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, "/bin/sh", &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error == 0) {
    output = ends[0];
    return pid;
  }
  close(ends[0]);
  return -1;
}

// All that it prints; stops it once this process is interrupted.
std::string ReadAll(int output, pid_t pid) {
  constexpr int kLookMs = 100;
  std::string all;
  bool is_stopped = false;
  for (;;) {
    if (!is_stopped && InterruptSignal() != 0) {
      is_stopped = true;
      kill(-pid, SIGTERM);
    }
    pollfd ready{.fd = output, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kLookMs) <= 0) continue;
    std::array<char, 4096> piece;
    const ssize_t bytes = read(output, piece.data(), piece.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return all;
    all.append(piece.data(), static_cast<size_t>(bytes));
  }
}

}  // namespace

TempFolder::TempFolder() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "bench_XXXXXX").string();
  if (!mkdtemp(pattern.data())) {
    throw collectives::Error("cannot make a folder like '" + pattern + "'");
  }
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

Outcome RunShell(const std::string& command, int seconds) {
  int output = -1;
  const pid_t pid = Spawn(command, seconds, output);
  if (pid < 0) return {127, "cannot start a shell"};
  Outcome outcome;
  outcome.output = ReadAll(output, pid);
  close(output);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return outcome;
}

std::string FirstLineOf(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) {
    throw collectives::Error("cannot write '" + path.string() + "'");
  }
}

}  // namespace trainsys
