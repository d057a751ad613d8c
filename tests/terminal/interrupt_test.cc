#include "trainsys/terminal/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

namespace trainsys {
namespace {

class InterruptTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Signals, InterruptTest,
                         testing::Values(SIGINT, SIGTERM, SIGHUP));

int SignalThrown() {
  try {
    ThrowIfInterrupted();
  } catch (const Interrupted& interrupted) {
    return interrupted.signal();
  }
  return 0;
}

TEST_P(InterruptTest, TheFirstIsNotedAndNoMore) {
  const InterruptScope scope;
  EXPECT_EQ(InterruptSignal(), 0);
  EXPECT_EQ(SignalThrown(), 0);
  raise(GetParam());
  EXPECT_EQ(InterruptSignal(), GetParam());
  EXPECT_EQ(SignalThrown(), GetParam());
}

TEST_P(InterruptTest, TheSecondEndsTheProcessAtOnce) {
  EXPECT_EXIT(
      {
        const InterruptScope scope;
        raise(SIGINT);
        raise(GetParam());
        std::exit(1);
      },
      testing::ExitedWithCode(128 + GetParam()), "");
}

TEST_P(InterruptTest, WithoutAScopeASignalDoesWhatItDid) {
  EXPECT_EXIT(
      {
        { const InterruptScope scope; }
        raise(GetParam());
        std::exit(1);
      },
      testing::KilledBySignal(GetParam()), "");
}

TEST_P(InterruptTest, WhatTheProcessIgnoresStaysIgnored) {
  EXPECT_EXIT(
      {
        signal(GetParam(), SIG_IGN);
        const InterruptScope scope;
        raise(GetParam());
        raise(GetParam());
        std::exit(InterruptSignal());
      },
      testing::ExitedWithCode(0), "");
}

TEST(InterruptTest, ANewScopeKnowsNothingOfTheLast) {
  {
    const InterruptScope scope;
    raise(SIGINT);
  }
  EXPECT_EQ(InterruptSignal(), 0);
  const InterruptScope scope;
  EXPECT_EQ(InterruptSignal(), 0);
}

}  // namespace
}  // namespace trainsys
