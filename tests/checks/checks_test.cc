#include "trainsys/checks/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/train/ranks_apart.h"

namespace trainsys {
namespace {

using ::testing::HasSubstr;

using Check = CheckResult (*)(const CheckOptions&, collectives::RankRunner&);
constexpr Check kChecks[] = {CheckBucketedDDP, CheckZeRO1, CheckRecomputation,
                             CheckAllThree};

// A fault, and which of the four checks notice it.
struct Case {
  std::string fault;
  std::vector<bool> fails;
  std::string reason;  // in the figures of the first check that fails
};

class ChecksTest : public testing::TestWithParam<Case> {};

TEST_P(ChecksTest, TheRightOnesFail) {
  const Case& c = GetParam();
  const Fault fault = c.fault.empty() ? Fault::kNone : *FaultNamed(c.fault);
  bool is_explained = c.reason.empty();
  for (size_t i = 0; i < 4; ++i) {
    const CheckResult result = kChecks[i](fault, collectives::RunnerHere());
    EXPECT_NE(result.has_passed, c.fails[i])
        << "check " << i + 1 << ", " << result.name << ": " << result.figures;
    EXPECT_EQ(result.figures.find('\n'), std::string::npos);
    if (result.has_passed || is_explained) continue;
    EXPECT_THAT(result.figures, HasSubstr(c.reason));
    is_explained = true;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, ChecksTest,
    testing::Values(
        Case{"", {false, false, false, false}, ""},
        Case{"no-average", {true, true, false, true}, "DIFFERENT bits"},
        Case{
            "missing-all-gather", {false, true, false, true}, "DIFFERENT bits"},
        Case{"launch-at-end",
             {true, false, false, false},
             "0 of 5 buckets were posted inside backward"},
        Case{"params-saved", {false, false, true, false}, "bytes raw"},
        Case{"wait-in-hook",
             {true, false, false, false},
             "bucket 0 was waited for inside backward"}),
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
  for (const Check check : kChecks) results.push_back(check(fault, runner));
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
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(results[0][i].name, expected[i].name);
      EXPECT_EQ(results[0][i].figures, expected[i].figures);
      EXPECT_EQ(results[0][i].has_passed, expected[i].has_passed);
      EXPECT_TRUE(results[1][i].has_passed);
      EXPECT_EQ(results[1][i].figures, "");
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
