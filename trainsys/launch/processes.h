// Ranks as processes of this machine: starts them and looks after them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace trainsys {

struct ProcessesOptions {
  int ranks = 1;  // 1 to collectives::kMaxRanks
  // Where the ranks find the store, which this process serves meanwhile.
  std::string address = "127.0.0.1";
  int port = 0;
  std::vector<std::string> command;  // argv; the first is the program's path
  // How long the others may take to end by themselves once a rank has failed,
  // and then again after SIGTERM.
  std::chrono::milliseconds grace{7000};
  // How long they may take to finish what they can once this process was told
  // to stop; by SIGINT, which a person can send again.
  std::chrono::milliseconds stop_grace{30'000};
  std::chrono::milliseconds interrupt_grace{600'000};
};

// Runs the command once for each rank, and forwards what they print.
//
// Environment: this process's, without the variables of other launchers, and
// with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
// and TORCHELASTIC_USE_AGENT_STORE=True. stdin is /dev/null.
//
// Output: stdout and stderr arrive in ours line by line, whole, behind
// "[rank2]: ". A line of more than 64 KiB is cut. While nobody takes our output
// the ranks have to wait with theirs. What a process that outlives its rank
// prints later is lost.
//
// Result: 0 if every rank ends with 0. Else the code of the rank that failed
// first, or 128 + the signal that killed it; of several found together, one
// that was killed counts as the first, for that is what makes others fail. The
// others may end by themselves for `grace`, then get SIGTERM, and after another
// `grace` SIGKILL; so does one that is stopped. One line on stderr says who
// failed and how.
//
// Signals: SIGINT, SIGTERM or SIGHUP to this process, or noted before by its
// InterruptScope, goes on to the ranks, each of which is in a process group of
// its own. SIGKILL follows after `stop_grace` (SIGINT: `interrupt_grace`), or
// at a second signal. The result is 128 + the first. One that this process
// ignores stays ignored. Where this process ends before the ranks, they are
// killed.
//
// Blocks: until all ranks have ended and what they printed is written.
// Threads: any one thread of the process at a time, which forks; others may run
// meanwhile.
// Errors: InvalidArgument for impossible options and a program that cannot be
// executed; Error where the system has no process or descriptor left (a rank
// takes two). No rank runs then.
int RunProcesses(const ProcessesOptions& options);

}  // namespace trainsys
