#include "trainsys/checks/checks.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/train/ranks_apart.h"

namespace trainsys {
namespace {

using ::testing::Eq;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Matcher;
using ::testing::Not;
using ::testing::SizeIs;

// A fault, and which of the four checks notice it.
struct Case {
  std::string fault;
  std::vector<bool> fails;
  std::string reason;  // in the first line of the first check that fails
};

class ChecksTest : public testing::TestWithParam<Case> {};

TEST_P(ChecksTest, TheRightOnesFail) {
  const Case& c = GetParam();
  const Fault fault = c.fault.empty() ? Fault::kNone : *FaultNamed(c.fault);
  bool is_explained = c.reason.empty();
  for (size_t i = 0; i < kChecks.size(); ++i) {
    const CheckResult result =
        RunCheck(kChecks[i], fault, collectives::RunnerHere());
    EXPECT_NE(result.has_passed, c.fails[i])
        << result.name << ": " << fmt::format("{}", result.lines);
    EXPECT_THAT(result.lines,
                SizeIs(result.has_passed ? Matcher<size_t>(Gt(2)) : Eq(2)));
    EXPECT_THAT(result.figures, Not(IsEmpty()));
    if (result.has_passed || is_explained) continue;
    EXPECT_THAT(result.lines[0], HasSubstr(c.reason));
    is_explained = true;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, ChecksTest,
    testing::Values(
        Case{"", {false, false, false, false}, ""},
        Case{"no-average", {true, true, false, true}, "2 times the mean"},
        Case{"missing-all-gather",
             {false, true, false, true},
             "were not gathered"},
        Case{"launch-at-end",
             {true, false, false, true},
             "0 of 5 asynchronous reductions were posted inside"},
        Case{"params-saved", {false, false, true, false}, "bytes raw"},
        Case{"wait-in-hook",
             {true, false, false, true},
             "5 of 5 reductions were waited for inside backward"}),
    [](const auto& info) {
      std::string name = info.param.fault.empty() ? "none" : info.param.fault;
      for (char& c : name) {
        if (c == '-') c = '_';
      }
      return name;
    });

// The four checks in turn; processes meet in them however many ranks each has.
std::vector<CheckResult> RunAll(collectives::RankRunner& runner, Fault fault) {
  std::vector<CheckResult> results;
  for (const Check& check : kChecks) {
    results.push_back(RunCheck(check, fault, runner));
  }
  return results;
}

TEST(ChecksTest, RanksApartPrintTheSameFiguresWhereTheFirstRuns) {
  for (const Fault fault : {Fault::kNone, Fault::kLaunchAtEnd}) {
    const std::vector<CheckResult> expected =
        RunAll(collectives::RunnerHere(), fault);
    const auto results =
        RanksApart(kCheckRanks)
            .RunPrograms<std::vector<CheckResult>>(
                [fault](auto& runner) { return RunAll(runner, fault); });
    for (size_t i = 0; i < kChecks.size(); ++i) {
      EXPECT_EQ(results[0][i].name, expected[i].name);
      EXPECT_EQ(results[0][i].lines, expected[i].lines);
      EXPECT_EQ(results[0][i].figures, expected[i].figures);
      EXPECT_EQ(results[0][i].has_passed, expected[i].has_passed);
      EXPECT_TRUE(results[1][i].has_passed);
      EXPECT_THAT(results[1][i].lines, IsEmpty());
    }
  }
}

TEST(FaultTest, EveryNameIsAFaultAndOthersAreNone) {
  EXPECT_EQ(FaultNames().size(), 5);
  for (const std::string& name : FaultNames()) {
    ASSERT_TRUE(FaultNamed(name));
    EXPECT_NE(*FaultNamed(name), Fault::kNone);
  }
  EXPECT_FALSE(FaultNamed("no-such-fault"));
  EXPECT_FALSE(FaultNamed(""));
}

}  // namespace
}  // namespace trainsys
