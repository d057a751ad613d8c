#include "trainsys/terminal/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>

namespace trainsys {
namespace {

constexpr std::array<int, 3> kTaken = {SIGINT, SIGTERM, SIGHUP};

// Written by the handler, in whichever thread the kernel chooses; read by any.
std::atomic<int> g_noted{0};
static_assert(std::atomic<int>::is_always_lock_free);

// Of kTaken, before; written and read by the thread that owns the scope.
std::array<struct sigaction, kTaken.size()> g_before;

constexpr char kNoted[] = "\nstopping; again: at once\n";

void OnSignal(int signal) {
  int none = 0;
  if (!g_noted.compare_exchange_strong(none, signal)) _exit(128 + signal);
  const int before = errno;
  if (isatty(STDERR_FILENO)) {
    [[maybe_unused]] const ssize_t written =
        write(STDERR_FILENO, kNoted, sizeof(kNoted) - 1);
  }
  errno = before;
}

}  // namespace

InterruptScope::InterruptScope() {
  g_noted = 0;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;  // who waits in a call goes on waiting
  for (size_t i = 0; i < kTaken.size(); ++i) {
    sigaction(kTaken[i], nullptr, &g_before[i]);
    if (g_before[i].sa_handler == SIG_IGN) continue;
    sigaction(kTaken[i], &action, nullptr);
  }
}

InterruptScope::~InterruptScope() {
  for (size_t i = 0; i < kTaken.size(); ++i) {
    sigaction(kTaken[i], &g_before[i], nullptr);
  }
  g_noted = 0;
}

int InterruptSignal() { return g_noted; }

void ThrowIfInterrupted() {
  if (const int signal = InterruptSignal()) throw Interrupted(signal);
}

}  // namespace trainsys
