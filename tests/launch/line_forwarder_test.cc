#include "trainsys/launch/line_forwarder.h"

#include <gtest/gtest.h>

#include <string>

namespace trainsys {
namespace {

TEST(LineForwarderTest, EveryLineGetsThePrefix) {
  LineForwarder lines("> ");
  EXPECT_EQ(lines.Feed("a\nbc\n\nd\n"), "> a\n> bc\n> \n> d\n");
  EXPECT_EQ(lines.Finish(), "");
}

TEST(LineForwarderTest, WhereTheStreamIsCutDoesNotMatter) {
  const std::string text = "one\n\ntwo three\nfour";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    LineForwarder lines("> ");
    std::string out;
    for (size_t at = 0; at < text.size(); at += piece) {
      out += lines.Feed(std::string_view(text).substr(at, piece));
    }
    EXPECT_EQ(out, "> one\n> \n> two three\n") << piece;
    EXPECT_EQ(lines.Finish(), "> four\n") << piece;
  }
}

TEST(LineForwarderTest, AfterFinishALineStartsAnew) {
  LineForwarder lines("> ");
  lines.Feed("a");
  EXPECT_EQ(lines.Finish(), "> a\n");
  EXPECT_EQ(lines.Finish(), "");
  EXPECT_EQ(lines.Feed("b\n"), "> b\n");
}

TEST(LineForwarderTest, ALineWithoutEndIsCut) {
  constexpr size_t kMax = LineForwarder::kMaxLineBytes;
  LineForwarder lines("> ");
  const std::string full(kMax, 'x');
  EXPECT_EQ(lines.Feed(full), "");
  EXPECT_EQ(lines.Feed("y"), "> " + full + "\n");
  EXPECT_EQ(lines.Feed("\n"), "> y\n");
}

TEST(LineForwarderTest, ALineOfTheLongestLengthIsNotCut) {
  const std::string full(LineForwarder::kMaxLineBytes, 'x');
  LineForwarder lines("> ");
  EXPECT_EQ(lines.Feed(full + "\nz\n"), "> " + full + "\n> z\n");
}

TEST(LineForwarderTest, OtherBytesPassAsTheyAre) {
  LineForwarder lines("> ");
  const std::string bytes("\0\r\xff\n", 4);
  EXPECT_EQ(lines.Feed(bytes), "> " + bytes);
}

}  // namespace
}  // namespace trainsys
