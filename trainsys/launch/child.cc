#include "trainsys/launch/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "collectives/errors.h"

namespace trainsys {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kDrainBytes = 1024 * 1024;

[[noreturn]] void ThrowSystemError(const char* what) {
  throw collectives::Error(
      fmt::format("cannot {}: {}", what, std::strerror(errno)));
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// All that the new process needs before it is another program, made before the
// fork: behind it, only async-signal-safe calls are allowed, for other threads
// may have held any lock.
struct Start {
  char* const* argv;
  char* const* envp;
  int in, out, err;  // become 0, 1, 2
  int failure;       // takes errno
  const std::vector<int>& reset_signals;
  sigset_t mask;
  pid_t parent;
};

void ResetSignals(const Start& start) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (const int signal : start.reset_signals) {
    sigaction(signal, &action, nullptr);
  }
  pthread_sigmask(SIG_SETMASK, &start.mask, nullptr);
}

[[noreturn]] void BecomeProgram(const Start& start) {
  // Asks first and looks then, so that a parent that is gone by now is noticed.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != start.parent) _exit(1);
  // A terminal's signals come from whoever started it, once.
  setpgid(0, 0);
  ResetSignals(start);
  if (dup2(start.in, 0) == 0 && dup2(start.out, 1) == 1 &&
      dup2(start.err, 2) == 2) {
    execve(start.argv[0], start.argv, start.envp);
  }
  const int error = errno;
  if (write(start.failure, &error, sizeof(error)) < 0) _exit(126);
  _exit(127);
}

// With all signals blocked: one that came in between would run the parent's
// handler in the child.
pid_t Fork(Start& start) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &start.mask);
  start.parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeProgram(start);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &start.mask, nullptr);
  errno = error;
  if (pid < 0) ThrowSystemError("start a process");
  return pid;
}

// 0, or why the program could not be executed: the pipe closes as it starts.
int AwaitProgram(const UniqueFd& failure) {
  int error = 0;
  ssize_t length;
  do {
    length = read(failure.get(), &error, sizeof(error));
  } while (length < 0 && errno == EINTR);
  return length == sizeof(error) ? error : 0;
}

std::string Prefix(int rank) { return fmt::format("[rank{}]: ", rank); }

}  // namespace

void UniqueFd::Close() {
  if (is_open()) close(std::exchange(fd_, -1));
}

Pipe MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) ThrowSystemError("make a pipe");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void SetNonBlocking(const UniqueFd& fd) {
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

Stream::Stream(UniqueFd fd, int target, std::string prefix)
    : fd_(std::move(fd)), target_(target), lines_(std::move(prefix)) {}

std::string Stream::TryRead() {
  char buffer[kReadBytes];
  const ssize_t length = read(fd_.get(), buffer, sizeof(buffer));
  if (length > 0) return lines_.Feed({buffer, static_cast<size_t>(length)});
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return "";
  fd_.Close();
  return lines_.Finish();
}

std::string Stream::Drain() {
  std::string lines;
  // Progress is seen in what was read: a part of a line gives no output.
  char buffer[kReadBytes];
  for (size_t total = 0; fd_.is_open() && total < kDrainBytes;) {
    const ssize_t length = read(fd_.get(), buffer, sizeof(buffer));
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) break;
    total += static_cast<size_t>(length);
    lines += lines_.Feed({buffer, static_cast<size_t>(length)});
  }
  fd_.Close();
  return lines + lines_.Finish();
}

Child::Child(int rank, const std::vector<std::string>& command,
             const std::vector<std::string>& environment,
             const std::vector<int>& reset_signals)
    : rank_(rank),
      streams_{Stream(UniqueFd(), STDOUT_FILENO, Prefix(rank)),
               Stream(UniqueFd(), STDERR_FILENO, Prefix(rank))} {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.is_open()) ThrowSystemError("open /dev/null");
  Pipe out = MakePipe();
  Pipe err = MakePipe();
  Pipe failure = MakePipe();
  SetNonBlocking(out.read_end);
  SetNonBlocking(err.read_end);
  const std::vector<char*> argv = Pointers(command);
  const std::vector<char*> envp = Pointers(environment);
  Start start{.argv = argv.data(),
              .envp = envp.data(),
              .in = null.get(),
              .out = out.write_end.get(),
              .err = err.write_end.get(),
              .failure = failure.write_end.get(),
              .reset_signals = reset_signals,
              .mask = {},
              .parent = 0};
  pid_ = Fork(start);
  failure.write_end.Close();
  if (const int error = AwaitProgram(failure.read_end)) {
    waitpid(pid_, nullptr, 0);
    throw collectives::InvalidArgument(
        fmt::format("cannot run {}: {}; give the path of a program",
                    command.front(), std::strerror(error)));
  }
  streams_[0] = Stream(std::move(out.read_end), STDOUT_FILENO, Prefix(rank));
  streams_[1] = Stream(std::move(err.read_end), STDERR_FILENO, Prefix(rank));
}

Child::Child(Child&& other) noexcept
    : rank_(other.rank_),
      streams_(std::move(other.streams_)),
      pid_(std::exchange(other.pid_, -1)),
      status_(other.status_) {}

Child::~Child() {
  if (!is_running()) return;
  Signal(SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Child::Signal(int signal) const {
  // Never after its end, when the number may be another process's.
  if (is_running()) kill(pid_, signal);
}

bool Child::TryReap() {
  int status = 0;
  if (!is_running() || waitpid(pid_, &status, WNOHANG) != pid_) return false;
  status_ = status;
  return true;
}

}  // namespace trainsys
