#include "trainsys/launch/processes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "collectives/errors.h"
#include "trainsys/terminal/interrupt.h"

// Ranks here are shell scripts. RunProcesses runs in a process of its own, so
// that it can be sent signals and its end be watched.

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using std::chrono::milliseconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kPatience{60};
constexpr char kForever[] = "exec sleep 1000";

bool Becomes(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    poll(nullptr, 0, 2);
  }
  return true;
}

std::string Content(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string ScratchPath() {
  static int count = 0;
  return testing::TempDir() + "/processes_test." + std::to_string(getpid()) +
         "." + std::to_string(count++);
}

ProcessesOptions Script(int ranks, const std::string& script,
                        milliseconds grace = milliseconds(100)) {
  return {.ranks = ranks,
          .address = "10.0.0.1",
          .port = 2345,
          .command = {"/bin/sh", "-c", script},
          .grace = grace,
          .stop_grace = grace,
          .interrupt_grace = grace};
}

// A process that runs RunProcesses, with what is to be known about it.
class Launch {
 public:
  explicit Launch(
      const ProcessesOptions& options,
      const std::function<void()>& prepare = [] {})
      : out_path_(ScratchPath()), err_path_(ScratchPath()) {
    int life[2];
    if (pipe(life) != 0) std::abort();
    life_ = life[0];
    fcntl(life_, F_SETFD, FD_CLOEXEC);
    pid_ = fork();
    if (pid_ == 0) Run(options, prepare);
    close(life[1]);
  }
  ~Launch() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(life_);
    std::remove(out_path_.c_str());
    std::remove(err_path_.c_str());
  }

  pid_t pid() const { return pid_; }
  std::string out() const { return Content(out_path_); }
  std::string err() const { return Content(err_path_); }
  void Signal(int signal) const { kill(pid_, signal); }

  // What RunProcesses returned; -1000 and less for something else.
  int Result() {
    int status = 0;
    if (!Becomes([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) {
      return -1000;
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1000 - WTERMSIG(status);
  }

  // Whether neither it nor anything that it has started runs any more: they
  // all hold the other end of a pipe.
  bool IsAllGone() const {
    pollfd life{life_, POLLIN, 0};
    const auto patience = std::chrono::milliseconds(kPatience);
    return poll(&life, 1, static_cast<int>(patience.count())) == 1;
  }

  bool HasPrinted(int num_lines) const {
    return Becomes(
        [&] { return Lines(out()).size() >= static_cast<size_t>(num_lines); });
  }

 private:
  [[noreturn]] void Run(const ProcessesOptions& options,
                        const std::function<void()>& prepare) const {
    const int flags = O_CREAT | O_WRONLY | O_APPEND;
    dup2(open(out_path_.c_str(), flags, 0600), STDOUT_FILENO);
    dup2(open(err_path_.c_str(), flags, 0600), STDERR_FILENO);
    for (const int taken : {SIGINT, SIGTERM, SIGHUP}) signal(taken, SIG_DFL);
    prepare();
    int result = 200;
    try {
      result = RunProcesses(options);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(result);
  }

  std::string out_path_, err_path_;
  int life_ = -1;
  pid_t pid_ = -1;
};

TEST(RunProcessesTest, ZeroWhenEveryRankEndsWithZero) {
  Launch launch(Script(4, "exit 0"));
  EXPECT_EQ(launch.Result(), 0);
  EXPECT_TRUE(launch.IsAllGone());
  EXPECT_EQ(launch.out(), "");
  EXPECT_EQ(launch.err(), "");
}

TEST(RunProcessesTest, LinesGoToTheirStreamBehindTheRanksName) {
  Launch launch(Script(2, "echo out $RANK; echo err $RANK >&2"));
  EXPECT_EQ(launch.Result(), 0);
  const auto out = Lines(launch.out());
  const auto err = Lines(launch.err());
  EXPECT_THAT(
      out, testing::UnorderedElementsAre("[rank0]: out 0", "[rank1]: out 1"));
  EXPECT_THAT(
      err, testing::UnorderedElementsAre("[rank0]: err 0", "[rank1]: err 1"));
}

TEST(RunProcessesTest, ALineWithoutEndIsForwardedToo) {
  Launch launch(Script(1, "printf 'whole\\npart'"));
  EXPECT_EQ(launch.Result(), 0);
  EXPECT_EQ(launch.out(), "[rank0]: whole\n[rank0]: part\n");
}

TEST(RunProcessesTest, LinesArriveWhileTheRanksRun) {
  Launch launch(Script(2, std::string("echo here;") + kForever));
  EXPECT_TRUE(launch.HasPrinted(2));
}

TEST(RunProcessesTest, TenMegabytesOfTwoStreamsInOnePipeStayWholeLines) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  // 4 ranks, 250 lines of 5000 bytes in each of two streams
  Launch launch(
      Script(4,
             "line=$(printf \"%05000d\" 0 | tr 0 $RANK);"
             "(yes $line | head -n 250 >&2) & yes $line | head -n 250; wait"),
      [&] {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
      });
  close(ends[1]);
  FILE* reader = fdopen(ends[0], "r");
  std::map<std::string, int> counts;
  static char line[10000];
  while (std::fgets(line, sizeof(line), reader) != nullptr) ++counts[line];
  std::fclose(reader);
  EXPECT_EQ(launch.Result(), 0);
  EXPECT_EQ(counts.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    const char digit = static_cast<char>('0' + rank);
    const std::string name = std::string("[rank") + digit + "]: ";
    EXPECT_EQ(counts[name + std::string(5000, digit) + "\n"], 500) << rank;
  }
}

TEST(RunProcessesTest, AnEndlessLineIsCutAndKeepsItsBytes) {
  Launch launch(Script(1, "head -c 3000000 /dev/zero | tr '\\0' x"));
  EXPECT_EQ(launch.Result(), 0);
  size_t num_bytes = 0;
  for (const std::string& line : Lines(launch.out())) {
    EXPECT_LE(line.size(), 9u + 64 * 1024);
    num_bytes += line.size() - 9;
  }
  EXPECT_EQ(num_bytes, 3000000u);
}

TEST(RunProcessesTest, OutputThatNobodyTakesHoldsTheRanksUpButNotASignal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string reached = ScratchPath();
  Launch launch(Script(1, "head -c 9000000 /dev/zero; echo > " + reached),
                [&] { dup2(ends[1], STDOUT_FILENO); });
  // The pipe is full once it takes nothing more.
  EXPECT_TRUE(Becomes([&] {
    pollfd full{ends[1], POLLOUT, 0};
    return poll(&full, 1, 0) == 0;
  }));
  // Time for it to go wrong; where it is right, no time matters.
  for (int i = 0; i < 200 && access(reached.c_str(), F_OK) != 0; ++i) {
    poll(nullptr, 0, 2);
  }
  EXPECT_NE(access(reached.c_str(), F_OK), 0);
  launch.Signal(SIGTERM);
  EXPECT_EQ(launch.Result(), 128 + SIGTERM);
  close(ends[0]);
  close(ends[1]);
}

TEST(RunProcessesTest, TheEnvironmentTellsEachRankItsPlaceAndNothingElse) {
  Launch launch(Script(2, "env"), [] {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
          "MPI_LOCALRANKID", "SLURM_PROCID", "SLURM_NTASKS",
          "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"}) {
      setenv(name, "13", 1);
    }
    setenv("KEPT", "a b", 1);
  });
  EXPECT_EQ(launch.Result(), 0);
  const auto lines = Lines(launch.out());
  const std::set<std::string> out(lines.begin(), lines.end());
  for (const std::string rank : {"0", "1"}) {
    for (const std::string& variable :
         {"RANK=" + rank, "LOCAL_RANK=" + rank, std::string("WORLD_SIZE=2"),
          std::string("LOCAL_WORLD_SIZE=2"),
          std::string("MASTER_ADDR=10.0.0.1"), std::string("MASTER_PORT=2345"),
          std::string("TORCHELASTIC_USE_AGENT_STORE=True"),
          std::string("KEPT=a b")}) {
      EXPECT_TRUE(out.contains("[rank" + rank + "]: " + variable)) << variable;
    }
  }
  EXPECT_THAT(launch.out(), Not(HasSubstr("=13")));
}

TEST(RunProcessesTest, RanksHaveNoInputAndNoDescriptorsOfOurs) {
  Launch launch(Script(4,
                       "cat; readlink /proc/self/fd/0;"
                       "set -- /proc/self/fd/*; echo $#"));
  EXPECT_EQ(launch.Result(), 0);
  std::set<std::string> counts;  // a leak would grow with the rank
  for (const std::string& line : Lines(launch.out())) {
    const std::string text = line.substr(line.find(' ') + 1);
    if (text != "/dev/null") counts.insert(text);
  }
  EXPECT_EQ(counts.size(), 1u) << launch.out();
  EXPECT_THAT(launch.out(), HasSubstr("[rank3]: /dev/null"));
}

TEST(RunProcessesTest, StartsWithoutStandardDescriptors) {
  const std::string path = ScratchPath();
  Launch launch(Script(2, "echo lost; echo fine >> " + path), [] {
    for (const int fd : {0, 1, 2}) close(fd);
  });
  EXPECT_EQ(launch.Result(), 0);
  EXPECT_EQ(Content(path), "fine\nfine\n");
}

TEST(RunProcessesTest, TheCodeOfTheFirstFailureIsTheResult) {
  Launch launch(Script(4, std::string("[ $RANK = 2 ] && exit 3;") + kForever));
  EXPECT_EQ(launch.Result(), 3);
  EXPECT_TRUE(launch.IsAllGone());
  EXPECT_EQ(launch.err(),
            "sh: rank 2 ended with exit code 3; stopped the others\n");
}

TEST(RunProcessesTest, ARankThatIsKilledIsNamedWithItsSignal) {
  Launch launch(
      Script(3, std::string("[ $RANK = 1 ] && kill -9 $$;") + kForever));
  EXPECT_EQ(launch.Result(), 128 + SIGKILL);
  EXPECT_TRUE(launch.IsAllGone());
  EXPECT_EQ(launch.err(),
            "sh: rank 1 was killed by signal 9 (Killed); stopped the others\n");
}

TEST(RunProcessesTest, TheOthersMayEndByThemselves) {
  const std::string failed = ScratchPath();
  // Rank 1 ends only when rank 0 has been waited for: it is no process any
  // more.
  Launch launch(Script(
      2,
      "if [ $RANK = 0 ]; then echo $$ > " + failed +
          "; exit 4; fi;"
          "until [ -s " +
          failed + " ]; do sleep 0.01; done; while kill -0 $(cat " + failed +
          ") 2>/dev/null; do sleep 0.01; done;"
          "echo rank 0 failed; exit 5",
      kPatience));
  EXPECT_EQ(launch.Result(), 4);
  EXPECT_EQ(launch.out(), "[rank1]: rank 0 failed\n");
  EXPECT_EQ(launch.err(), "sh: rank 0 ended with exit code 4\n");
}

TEST(RunProcessesTest, OfSeveralFoundTogetherTheKilledOneIsTheCause) {
  const std::string go = ScratchPath();
  Launch launch(Script(2, "echo $$; until [ -e " + go +
                              " ]; do sleep 0.01; done;"
                              "[ $RANK = 1 ] && kill -9 $$; exit 1"));
  ASSERT_TRUE(launch.HasPrinted(2));
  launch.Signal(SIGSTOP);
  std::ofstream(go) << "\n";
  for (const std::string& line : Lines(launch.out())) {
    const std::string stat = "/proc/" + line.substr(9) + "/stat";
    EXPECT_TRUE(Becomes(
        [&] { return Content(stat).find(") Z") != std::string::npos; }));
  }
  launch.Signal(SIGCONT);
  EXPECT_EQ(launch.Result(), 128 + SIGKILL);
  EXPECT_THAT(launch.err(), HasSubstr("rank 1 was killed"));
}

TEST(RunProcessesTest, ARankThatIgnoresTermIsKilled) {
  Launch launch(Script(
      2, std::string("trap '' TERM; [ $RANK = 1 ] && exit 6;") + kForever));
  EXPECT_EQ(launch.Result(), 6);
  EXPECT_TRUE(launch.IsAllGone());
}

TEST(RunProcessesTest, ARankThatIsStoppedIsKilled) {
  Launch launch(Script(
      2, std::string("[ $RANK = 1 ] && exit 7; kill -STOP $$;") + kForever));
  EXPECT_EQ(launch.Result(), 7);
  EXPECT_TRUE(launch.IsAllGone());
}

TEST(RunProcessesTest, WithoutGraceTheOthersAreStoppedAtOnce) {
  Launch launch(Script(
      2, std::string("[ $RANK = 1 ] && exit 8; trap '' TERM;") + kForever,
      milliseconds(0)));
  EXPECT_EQ(launch.Result(), 8);
  EXPECT_TRUE(launch.IsAllGone());
}

class SignalTest : public testing::TestWithParam<int> {};

TEST_P(SignalTest, StopsTheRanksAndIsTheResult) {
  Launch launch(Script(3, std::string("echo ready;") + kForever, kPatience));
  ASSERT_TRUE(launch.HasPrinted(3));
  launch.Signal(GetParam());
  EXPECT_EQ(launch.Result(), 128 + GetParam());
  EXPECT_TRUE(launch.IsAllGone());
  EXPECT_THAT(launch.err(), ContainsRegex("sh: stopped by signal"));
}

TEST_P(SignalTest, GoesOnToTheRanksWhichMayFinish) {
  Launch launch(Script(
      2,
      "finish() { echo got $1; exit 0; };"
      "trap 'finish INT' INT; trap 'finish TERM' TERM; trap 'finish HUP' HUP;"
      "echo ready; while :; do sleep 0.01; done",
      kPatience));
  ASSERT_TRUE(launch.HasPrinted(2));
  launch.Signal(GetParam());
  EXPECT_EQ(launch.Result(), 128 + GetParam());
  const std::string name = std::string("got ") + sigabbrev_np(GetParam());
  EXPECT_THAT(launch.out(), HasSubstr("[rank0]: " + name));
  EXPECT_THAT(launch.out(), HasSubstr("[rank1]: " + name));
}

TEST_P(SignalTest, ThatWasNotedBeforeTheRanksStartedStopsThem) {
  std::optional<InterruptScope> scope;
  Launch launch(Script(2, kForever, kPatience), [&scope] {
    scope.emplace();
    raise(GetParam());
  });
  EXPECT_EQ(launch.Result(), 128 + GetParam());
}

TEST_P(SignalTest, StaysIgnoredWhereItWas) {
  const std::string go = ScratchPath();
  Launch launch(Script(1, "echo ready; until [ -e " + go +
                              " ]; do sleep 0.01; done; echo done"),
                [] { signal(GetParam(), SIG_IGN); });
  ASSERT_TRUE(launch.HasPrinted(1));
  launch.Signal(GetParam());
  std::ofstream(go) << "\n";
  EXPECT_EQ(launch.Result(), 0);
  EXPECT_EQ(launch.err(), "");
}

INSTANTIATE_TEST_SUITE_P(All, SignalTest,
                         testing::Values(SIGTERM, SIGINT, SIGHUP));

// A terminal signals the launcher's group.
TEST(RunProcessesTest, EachRankHasAProcessGroupOfItsOwn) {
  Launch launch(Script(2, "cut -d ' ' -f 1,5 /proc/self/stat; echo $$"));
  EXPECT_EQ(launch.Result(), 0);
  std::set<std::string> groups, ranks;
  for (const std::string& line : Lines(launch.out())) {
    const std::string text = line.substr(line.find(' ') + 1);
    const size_t blank = text.find(' ');
    (blank == text.npos ? ranks : groups).insert(text.substr(blank + 1));
  }
  EXPECT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups, ranks) << launch.out();
}

TEST(RunProcessesTest, ARankThatDoesNotFinishIsKilledAfterTheGrace) {
  Launch launch(Script(2, std::string("trap '' INT; echo ready;") + kForever));
  ASSERT_TRUE(launch.HasPrinted(2));
  launch.Signal(SIGINT);
  EXPECT_EQ(launch.Result(), 128 + SIGINT);
  EXPECT_TRUE(launch.IsAllGone());
}

TEST(RunProcessesTest, ASecondSignalKills) {
  Launch launch(Script(2, std::string("trap '' TERM; echo ready;") + kForever,
                       kPatience * 10));
  ASSERT_TRUE(launch.HasPrinted(2));
  EXPECT_TRUE(Becomes([&] {
    launch.Signal(SIGTERM);
    siginfo_t ended = {};
    waitid(P_PID, static_cast<id_t>(launch.pid()), &ended,
           WEXITED | WNOHANG | WNOWAIT);
    return ended.si_pid == launch.pid();
  }));
  EXPECT_EQ(launch.Result(), 128 + SIGTERM);
  EXPECT_TRUE(launch.IsAllGone());
}

TEST(RunProcessesTest, TheRanksDieWithAParentThatIsKilled) {
  Launch launch(Script(4, std::string("echo ready;") + kForever));
  ASSERT_TRUE(launch.HasPrinted(4));
  launch.Signal(SIGKILL);
  EXPECT_EQ(launch.Result(), -1000 - SIGKILL);
  EXPECT_TRUE(launch.IsAllGone());
}

TEST(RunProcessesTest, AProcessThatOutlivesItsRankIsNotWaitedFor) {
  Launch launch(Script(1, "sleep 1000 & echo $!"));
  EXPECT_EQ(launch.Result(), 0);
  const std::string out = launch.out();
  ASSERT_THAT(out, HasSubstr("[rank0]: "));
  EXPECT_EQ(kill(std::stoi(out.substr(9)), SIGKILL), 0);
}

TEST(RunProcessesTest, AProcessThatOutlivesItsRankAndWritesIsNotWaitedFor) {
  Launch launch(Script(1, "yes & echo $! >&2"));
  EXPECT_EQ(launch.Result(), 0);
  EXPECT_TRUE(launch.IsAllGone());  // of SIGPIPE
}

TEST(RunProcessesTest, ItsOwnDispositionsComeBack) {
  struct sigaction before, after;
  sigaction(SIGTERM, nullptr, &before);
  EXPECT_EQ(RunProcesses(Script(2, "exit 0")), 0);
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  EXPECT_EQ(RunProcesses(Script(2, "exit 0")), 0);  // and it runs again
}

std::string ErrorOf(const ProcessesOptions& options) {
  try {
    RunProcesses(options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(RunProcessesTest, AProgramThatCannotRunIsInvalid) {
  auto options = Script(3, "");
  options.command = {"/nowhere/emulate"};
  EXPECT_EQ(ErrorOf(options),
            "cannot run /nowhere/emulate: No such file or directory; give the "
            "path of a program");
  options.command = {"/"};
  EXPECT_THAT(ErrorOf(options), HasSubstr("cannot run /: Permission denied"));
}

TEST(RunProcessesTest, ImpossibleOptionsAreInvalid) {
  const auto broken = [](const std::function<void(ProcessesOptions&)>& change) {
    auto options = Script(2, "exit 0");
    change(options);
    return ErrorOf(options);
  };
  EXPECT_EQ(broken([](auto& options) { options.ranks = 0; }),
            "0 processes; choose from 1 to 1024");
  EXPECT_NE(broken([](auto& options) { options.ranks = 1025; }), "");
  EXPECT_EQ(broken([](auto& options) { options.port = 65536; }),
            "port 65536; choose from 1 to 65535");
  EXPECT_NE(broken([](auto& options) { options.port = 0; }), "");
  EXPECT_NE(broken([](auto& options) { options.address.clear(); }), "");
  EXPECT_NE(broken([](auto& options) { options.command.clear(); }), "");
  EXPECT_NE(broken([](auto& options) { options.grace = milliseconds(-1); }),
            "");
  EXPECT_NE(
      broken([](auto& options) { options.stop_grace = milliseconds(-1); }), "");
}

}  // namespace
}  // namespace trainsys
