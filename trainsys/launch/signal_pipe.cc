#include "trainsys/launch/signal_pipe.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace trainsys {
namespace {

// Written to by the handler, in whichever thread the kernel chooses.
std::atomic<int> g_signal_pipe{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void OnSignal(int signal) {
  const int error = errno;
  const char byte = static_cast<char>(signal);
  // A full pipe wakes its reader just as well.
  [[maybe_unused]] const ssize_t written = write(g_signal_pipe, &byte, 1);
  errno = error;
}

}  // namespace

SignalPipe::SignalPipe() : pipe_(MakePipe()) {
  SetNonBlocking(pipe_.read_end);
  SetNonBlocking(pipe_.write_end);
  g_signal_pipe = pipe_.write_end.get();
  Take(SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now;
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) Take(signal);
  }
}

SignalPipe::~SignalPipe() {
  for (size_t i = 0; i < taken_.size(); ++i) {
    sigaction(taken_[i], &before_[i], nullptr);
  }
  g_signal_pipe = -1;
}

std::string SignalPipe::TryRead() const {
  char bytes[64];
  const ssize_t length = read(fd(), bytes, sizeof(bytes));
  return length > 0 ? std::string(bytes, static_cast<size_t>(length)) : "";
}

void SignalPipe::Take(int signal) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART | (signal == SIGCHLD ? SA_NOCLDSTOP : 0);
  sigfillset(&action.sa_mask);
  taken_.push_back(signal);
  sigaction(signal, &action, &before_.emplace_back());
}

}  // namespace trainsys
