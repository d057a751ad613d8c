#include "tools/step_bench/line_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

LineProcess::Deadline In(milliseconds time) {
  return steady_clock::now() + time;
}
LineProcess::Deadline Late() { return In(std::chrono::seconds(60)); }

class LineProcessTest : public ::testing::Test {
 protected:
  LineProcess Shell(const std::string& script) {
    return LineProcess({"sh", "-c", script}, errors_);
  }

  static std::string ErrorOf(const std::function<void()>& fn) {
    try {
      fn();
    } catch (const collectives::Error& error) {
      return error.what();
    }
    return "no error";
  }

  const std::string errors_ = ::testing::TempDir() + "/errors";
};

TEST_F(LineProcessTest, LinesAreAnsweredInOrder) {
  LineProcess echo = Shell("while read -r a; do echo \"<$a>\"; done");
  echo.Send("one");
  echo.Send("two");
  EXPECT_EQ(echo.Receive(Late()), "<one>");
  EXPECT_EQ(echo.Receive(Late()), "<two>");
  echo.Send("three");
  EXPECT_EQ(echo.Receive(Late()), "<three>");
}

TEST_F(LineProcessTest, ALineMayComeInPieces) {
  LineProcess slow =
      Shell("printf a; read -r x; printf 'b\\nc'; read -r x; echo d; read x");
  EXPECT_EQ(ErrorOf([&] { slow.Receive(In(milliseconds(1))); }),
            "no answer within the deadline");
  slow.Send("on");
  EXPECT_EQ(slow.Receive(Late()), "ab");
  slow.Send("on");
  EXPECT_EQ(slow.Receive(Late()), "cd");
}

TEST_F(LineProcessTest, AnEndSaysTheLastLineOfStderr) {
  LineProcess ended = Shell("echo first >&2; echo last >&2; exit 1");
  EXPECT_EQ(ErrorOf([&] { ended.Receive(Late()); }), "it has ended: last");
  EXPECT_EQ(ErrorOf([&] { ended.Send("x"); }), "it has ended: last");
}

TEST_F(LineProcessTest, AnEndWithoutAWordIsTold) {
  LineProcess ended = Shell("exit 0");
  EXPECT_EQ(ErrorOf([&] { ended.Receive(Late()); }), "it has ended");
}

TEST_F(LineProcessTest, WhatNeverAnswersIsGivenUpAndKilled) {
  const auto began = steady_clock::now();
  {
    LineProcess silent = Shell("trap '' TERM HUP; exec sleep 1000");
    EXPECT_EQ(ErrorOf([&] { silent.Receive(In(milliseconds(20))); }),
              "no answer within the deadline");
  }
  EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(30));
}

TEST_F(LineProcessTest, AProgramThatIsNotThereIsAnError) {
  EXPECT_THAT(ErrorOf([&] { LineProcess({"no-such-program"}, errors_); }),
              ::testing::HasSubstr("cannot run no-such-program: "));
}

}  // namespace
}  // namespace trainsys
