#include "trainsys/optim/optimizer_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::string Complaint(const OptimizerOptions& options) {
  try {
    Validate(options);
  } catch (const collectives::InvalidArgument& error) {
    return error.what();
  }
  return "";
}

template <typename Options>
void ExpectAdamsNumbersAreChecked() {
  EXPECT_EQ(Complaint(Options{}), "");
  EXPECT_EQ(Complaint(Options{0, 0, 0, 0, 0}), "");
  for (const double bad : {-1.0, kNan, kInf}) {
    for (const Options& options : std::vector<Options>{{.lr = bad},
                                                       {.beta1 = bad},
                                                       {.beta2 = bad},
                                                       {.eps = bad},
                                                       {.weight_decay = bad}}) {
      EXPECT_THAT(Complaint(options), HasSubstr(NameOf(options) + ": "));
    }
  }
  EXPECT_THAT(Complaint(Options{.beta1 = 1}),
              HasSubstr("beta1 is 1; expected"));
  EXPECT_THAT(Complaint(Options{.beta2 = 1}),
              HasSubstr("beta2 is 1; expected"));
}

TEST(OptimizerOptionsTest, NumbersOutOfRangeAreRefusedByName) {
  ExpectAdamsNumbersAreChecked<AdamWOptions>();
  ExpectAdamsNumbersAreChecked<AdamOptions>();
  EXPECT_EQ(Complaint(SGDOptions{}), "");
  EXPECT_EQ(Complaint(SGDOptions{.momentum = 1.5, .dampening = -0.5}), "");
  for (const double bad : {-1.0, kNan, kInf}) {
    EXPECT_THAT(Complaint(SGDOptions{.lr = bad}), HasSubstr("SGD: lr"));
    EXPECT_THAT(Complaint(SGDOptions{.momentum = bad}),
                HasSubstr("SGD: momentum"));
    EXPECT_THAT(Complaint(SGDOptions{.weight_decay = bad}),
                HasSubstr("SGD: weight_decay"));
  }
  EXPECT_THAT(Complaint(SGDOptions{.dampening = kInf}),
              HasSubstr("SGD: dampening"));
}

TEST(OptimizerOptionsTest, NesterovNeedsMomentumWithoutDampening) {
  EXPECT_EQ(Complaint(SGDOptions{.momentum = 0.9, .nesterov = true}), "");
  EXPECT_THAT(Complaint(SGDOptions{.nesterov = true}),
              AllOf(HasSubstr("nesterov"), HasSubstr("expected momentum")));
  EXPECT_THAT(Complaint(SGDOptions{
                  .momentum = 0.9, .dampening = 0.5, .nesterov = true}),
              HasSubstr("dampening 0.5"));
}

TEST(OptimizerOptionsTest, SGDNeedsAMomentForMomentumOnly) {
  EXPECT_EQ(NumMoments(AdamWOptions{}), 2);
  EXPECT_EQ(NumMoments(AdamOptions{}), 2);
  EXPECT_EQ(NumMoments(SGDOptions{}), 0);
  EXPECT_EQ(NumMoments(SGDOptions{.momentum = 0.5}), 1);
}

TEST(OptimizerOptionsTest, TheLearningRateOfEachKindIsReadAndSet) {
  for (OptimizerOptions options : std::vector<OptimizerOptions>{
           AdamWOptions{.lr = 0.25}, AdamOptions{.lr = 0.25},
           SGDOptions{.lr = 0.25}}) {
    EXPECT_EQ(LrOf(options), 0.25) << NameOf(options);
    SetLr(options, 0.5);
    EXPECT_EQ(LrOf(options), 0.5) << NameOf(options);
  }
}

TEST(OptimizerOptionsTest, KindsHaveTheNamesOfTheField) {
  EXPECT_EQ(NameOf(AdamWOptions{}), "AdamW");
  EXPECT_EQ(NameOf(AdamOptions{}), "Adam");
  EXPECT_EQ(NameOf(SGDOptions{}), "SGD");
}

}  // namespace
}  // namespace trainsys
