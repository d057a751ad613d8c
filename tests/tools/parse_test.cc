#include "tools/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <exception>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

using ::testing::HasSubstr;

TEST(HelpTest, FitsIn80ColumnsAndLosesNothing) {
  CLI::App app("Tries.", "tool");
  const std::string margin(26, ' '), a(50, 'a'), b(50, 'b'), c(54, 'c');
  int ranks = 4;
  std::vector<int> sizes{2, 4};
  double lr = 0;
  bool is_quick = false;
  std::string kind;
  auto* const one =
      app.add_option("--ranks,-r", ranks, a + " " + c)->capture_default_str();
  app.add_option("--sizes", sizes, "of " + std::string(300, 'x'))
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--lr", lr, "rate")->excludes(one)->required();
  app.add_flag("--quick", is_quick, "less");
  app.add_option("--kind", kind, "which")->check(CLI::IsMember({a, b}));
  std::string name = "tool", help = "--help";
  char* argv[] = {name.data(), help.data(), nullptr};
  testing::internal::CaptureStdout();
  EXPECT_EQ(Parse(app, 2, argv), 0);
  const std::string out = testing::internal::GetCapturedStdout();
  std::istringstream lines(out);
  std::string without_breaks;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80) << line;
    without_breaks +=
        line.substr(std::min(line.size(), line.find_first_not_of(' ')));
  }
  EXPECT_THAT(out, HasSubstr("\n  -r,--ranks INT=4 (not with --lr)\n" + margin +
                             a + "\n" + margin + c + "\n"));
  EXPECT_THAT(out, HasSubstr("\n  --sizes INT in [1 - 1024]=2,4 ...\n"));
  EXPECT_THAT(out, HasSubstr("\n  --lr FLOAT (required) (not with --ranks)\n"));
  EXPECT_THAT(out, HasSubstr("\n  --quick                 less\n"));
  EXPECT_THAT(without_breaks, HasSubstr(std::string(300, 'x')));
  EXPECT_THAT(without_breaks, HasSubstr("{" + a + "," + b + "}"));
}

struct Ending {
  int code;
  std::string err;
};

Ending EndingOf(const std::function<int()>& run) {
  CLI::App app("", "tool");
  testing::internal::CaptureStderr();
  const int code = Main(app, run);
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(MainTest, ExceptionsBecomeOneLineAndAnExitCode) {
  const auto throwing = [](const auto& error) {
    return EndingOf([&error]() -> int { throw error; });
  };
  const Ending usage = throwing(collectives::InvalidArgument("ranks is 0"));
  EXPECT_EQ(usage.code, kExitUsage);
  EXPECT_EQ(usage.err, "tool: ranks is 0\n");
  const Ending failed = throwing(std::runtime_error("boom\nstack\ntrace"));
  EXPECT_EQ(failed.code, kExitFailed);
  EXPECT_EQ(failed.err, "tool: boom\n");
  const Ending stopped = throwing(Interrupted(15));
  EXPECT_EQ(stopped.code, 128 + 15);
  EXPECT_EQ(stopped.err, "tool: interrupted\n");
  const Ending rank = throwing(collectives::RankFailed(
      3, "interrupted", std::make_exception_ptr(Interrupted(2))));
  EXPECT_EQ(rank.code, 128 + 2);
  EXPECT_EQ(rank.err, "tool: interrupted\n");
}

TEST(MainTest, ASignalIsNotedWhileTheProgramRuns) {
  const Ending ending = EndingOf([] {
    raise(SIGTERM);
    ThrowIfInterrupted();
    return 0;
  });
  EXPECT_EQ(ending.code, 128 + SIGTERM);
}

}  // namespace
}  // namespace trainsys
