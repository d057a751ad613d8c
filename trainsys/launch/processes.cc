#include "trainsys/launch/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "collectives/errors.h"
#include "collectives/run_ranks.h"
#include "trainsys/launch/child.h"
#include "trainsys/launch/signal_pipe.h"
#include "trainsys/terminal/interrupt.h"
#include "trainsys/terminal/terminal.h"

namespace trainsys {
namespace {

using Clock = std::chrono::steady_clock;
using collectives::InvalidArgument;
using collectives::kMaxRanks;

constexpr int kMaxPort = 65535;
// As much as goes into a pipe for which poll says that it takes something.
constexpr size_t kWriteBytes = 4096;
// With more than this waiting to be written, the ranks wait.
constexpr size_t kMaxWaitingBytes = 1024 * 1024;

void Validate(const ProcessesOptions& options) {
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    throw InvalidArgument(fmt::format("{} processes; choose from 1 to {}",
                                      options.ranks, kMaxRanks));
  }
  if (options.port < 1 || options.port > kMaxPort) {
    throw InvalidArgument(
        fmt::format("port {}; choose from 1 to {}", options.port, kMaxPort));
  }
  if (options.address.empty() || options.command.empty()) {
    throw InvalidArgument("starting processes takes an address and a command");
  }
  if (std::min({options.grace, options.stop_grace, options.interrupt_grace}) <
      std::chrono::milliseconds::zero()) {
    throw InvalidArgument("the grace for ending is negative; choose 0 or more");
  }
}

// ------------------------------------------------------------- environment

// Everything by which a process could take itself for another rank.
bool BelongsToALauncher(std::string_view variable) {
  constexpr std::string_view kPrefixes[] = {
      "RANK=",        "LOCAL_RANK=",  "WORLD_SIZE=",   "LOCAL_WORLD_SIZE=",
      "MASTER_ADDR=", "MASTER_PORT=", "TORCHELASTIC_", "OMPI_",
      "PMI_",         "PMIX_",        "MPI_LOCAL",     "SLURM_"};
  return std::any_of(
      std::begin(kPrefixes), std::end(kPrefixes),
      [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

std::vector<std::string> EnvironmentOf(int rank,
                                       const ProcessesOptions& options) {
  std::vector<std::string> variables;
  for (char** now = environ; *now != nullptr; ++now) {
    if (!BelongsToALauncher(*now)) variables.emplace_back(*now);
  }
  const auto add = [&](const char* name, const auto& value) {
    variables.push_back(fmt::format("{}={}", name, value));
  };
  add("RANK", rank);
  add("LOCAL_RANK", rank);
  add("WORLD_SIZE", options.ranks);
  add("LOCAL_WORLD_SIZE", options.ranks);
  add("MASTER_ADDR", options.address);
  add("MASTER_PORT", options.port);
  add("TORCHELASTIC_USE_AGENT_STORE", "True");
  return variables;
}

// ------------------------------------------------------------------ output

// What waits to be written to our stdout and stderr. One queue for both, so
// that no line is torn where they are the same file.
class OutputQueue {
 public:
  void Add(int fd, std::string lines) {
    if (lines.empty()) return;
    num_bytes_ += lines.size();
    parts_.push_back({fd, std::move(lines)});
  }

  bool empty() const { return parts_.empty(); }
  bool is_full() const { return num_bytes_ > kMaxWaitingBytes; }
  int fd() const { return parts_.front().fd; }  // the next to be written to

  // Call: once poll says that fd() takes something, so that it does not block.
  void Write() {
    const Part& part = parts_.front();
    const size_t left = part.lines.size() - num_written_;
    const ssize_t length = write(part.fd, part.lines.data() + num_written_,
                                 std::min(left, kWriteBytes));
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
    // Where our output is gone, so is what should have gone there.
    num_written_ += length < 0 ? left : static_cast<size_t>(length);
    if (num_written_ < part.lines.size()) return;
    num_bytes_ -= part.lines.size();
    num_written_ = 0;
    parts_.pop_front();
  }

 private:
  struct Part {
    int fd;
    std::string lines;
  };
  std::deque<Part> parts_;
  size_t num_written_ = 0;  // of the first part
  size_t num_bytes_ = 0;    // of all parts
};

// -------------------------------------------------------------- supervision

int ExitCode(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string NameOf(int signal) {
  return fmt::format("signal {} ({})", signal, strsignal(signal));
}

std::string Ending(int status) {
  return WIFSIGNALED(status)
             ? "was killed by " + NameOf(WTERMSIG(status))
             : fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

class Supervisor {
 public:
  explicit Supervisor(const ProcessesOptions& options) : options_(options) {
    children_.reserve(static_cast<size_t>(options.ranks));
    for (int rank = 0; rank < options.ranks; ++rank) {
      children_.emplace_back(rank, options.command,
                             EnvironmentOf(rank, options), signals_.taken());
    }
  }

  int Run() {
    if (const int signal = InterruptSignal()) Stop(signal);
    TakeSignals();  // a child may have ended before all were started
    while (IsAnyRunning()) Turn();
    Report();
    // Whoever was told to stop does not wait for the reader of its output.
    while (!output_.empty() && (stop_signal_ == 0 || CanWrite())) Turn();
    if (stop_signal_ != 0) return 128 + stop_signal_;
    return failure_ ? ExitCode(failure_->status()) : 0;
  }

 private:
  // How far the ending of the others has gone.
  enum class Stage { kRunning, kWaiting, kTerminating, kKilling };

  bool IsAnyRunning() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.is_running(); });
  }

  bool CanWrite() const {
    pollfd output{output_.fd(), POLLOUT, 0};
    return poll(&output, 1, 0) > 0;
  }

  // Waits until something has happened, and does what follows from it.
  void Turn() {
    std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0}};
    std::vector<Stream*> streams;
    for (Stream* stream : ReadableStreams()) {
      polled.push_back({stream->fd().get(), POLLIN, 0});
      streams.push_back(stream);
    }
    if (!output_.empty()) polled.push_back({output_.fd(), POLLOUT, 0});
    if (poll(polled.data(), polled.size(), PollTimeoutMs()) > 0) {
      if (!output_.empty() && polled.back().revents != 0) output_.Write();
      for (size_t i = 0; i < streams.size(); ++i) {
        if (polled[i + 1].revents == 0) continue;
        output_.Add(streams[i]->target(), streams[i]->TryRead());
      }
      if (polled[0].revents != 0) TakeSignals();
    }
    if (deadline_ && Clock::now() >= *deadline_) Escalate();
  }

  std::vector<Stream*> ReadableStreams() {
    std::vector<Stream*> readable;
    if (output_.is_full()) return readable;
    for (Child& child : children_) {
      for (Stream& stream : child.streams()) {
        if (stream.fd().is_open()) readable.push_back(&stream);
      }
    }
    return readable;
  }

  int PollTimeoutMs() const {
    if (!deadline_) return -1;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
    return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60000));
  }

  void TakeSignals() {
    for (const char signal : signals_.TryRead()) {
      if (signal == SIGCHLD) continue;
      Stop(signal);
    }
    ReapChildren();
  }

  // The first goes on to the ranks, unless they are being ended already.
  void Stop(int signal) {
    const bool is_first = stop_signal_ == 0 && stage_ != Stage::kTerminating;
    if (stop_signal_ == 0) stop_signal_ = signal;
    if (is_first) {
      if (isatty(STDERR_FILENO)) {
        output_.Add(STDERR_FILENO, "\nstopping; again: at once\n");
      }
      SignalAll(signal, Stage::kTerminating);
    } else {
      SignalAll(SIGKILL, Stage::kKilling);
    }
  }

  void ReapChildren() {
    std::vector<const Child*> failed;
    for (Child& child : children_) {
      if (!child.TryReap()) continue;
      for (Stream& stream : child.streams()) {
        output_.Add(stream.target(), stream.Drain());
      }
      if (child.status() != 0) failed.push_back(&child);
    }
    HurryAfter(failed);
    if (failed.empty() || failure_ != nullptr) return;
    const auto killed = std::find_if(
        failed.begin(), failed.end(),
        [](const Child* child) { return WIFSIGNALED(child->status()); });
    failure_ = killed != failed.end() ? *killed : failed.front();
    if (stage_ == Stage::kRunning) EnterStage(Stage::kWaiting);
  }

  // Whom a signal has killed takes no part in an orderly end, and the others
  // would wait for it.
  void HurryAfter(const std::vector<const Child*>& failed) {
    const bool was_killed = std::any_of(
        failed.begin(), failed.end(),
        [](const Child* child) { return WIFSIGNALED(child->status()); });
    if (!was_killed || stage_ != Stage::kTerminating || !deadline_) return;
    deadline_ = std::min(*deadline_, Clock::now() + options_.grace);
  }

  void EnterStage(Stage stage) {
    stage_ = stage;
    deadline_.reset();
    if (stage == Stage::kKilling) return;
    deadline_ = Clock::now() + Grace();
  }

  std::chrono::milliseconds Grace() const {
    if (stop_signal_ == 0) return options_.grace;
    return stop_signal_ == SIGINT ? options_.interrupt_grace
                                  : options_.stop_grace;
  }

  void Escalate() {
    if (stage_ == Stage::kWaiting) {
      SignalAll(SIGTERM, Stage::kTerminating);
    } else {
      SignalAll(SIGKILL, Stage::kKilling);
    }
  }

  void SignalAll(int signal, Stage next) {
    for (const Child& child : children_) {
      was_anyone_stopped_ |= child.is_running();
      child.Signal(signal);
    }
    EnterStage(next);
  }

  void Report() {
    const std::string& path = options_.command.front();
    const std::string name = path.substr(path.rfind('/') + 1);
    if (stop_signal_ != 0) {
      output_.Add(STDERR_FILENO, fmt::format("{}: stopped by {}\n", name,
                                             NameOf(stop_signal_)));
    } else if (failure_ != nullptr) {
      output_.Add(
          STDERR_FILENO,
          fmt::format("{}: rank {} {}{}\n", name, failure_->rank(),
                      Ending(failure_->status()),
                      was_anyone_stopped_ ? "; stopped the others" : ""));
    }
  }

  const ProcessesOptions& options_;
  SignalPipe signals_;           // before the children: their ends are signals
  std::vector<Child> children_;  // by rank
  OutputQueue output_;
  Stage stage_ = Stage::kRunning;
  std::optional<Clock::time_point> deadline_;  // of the stage
  const Child* failure_ = nullptr;             // of the first that failed
  int stop_signal_ = 0;                        // that this process got
  bool was_anyone_stopped_ = false;
};

}  // namespace

int RunProcesses(const ProcessesOptions& options) {
  Validate(options);
  OpenStandardDescriptors();
  std::fflush(nullptr);  // what this process has printed comes first
  return Supervisor(options).Run();
}

}  // namespace trainsys
