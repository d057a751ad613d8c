#include "trainsys/terminal/terminal.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/terminal/pseudo_terminal.h"

namespace trainsys {
namespace {

constexpr char kVerdicts[] =
    "PASS memory\n  FAIL indented\nFAIL bits, no PASS\nrest";

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File AFile() { return {std::tmpfile(), std::fclose}; }

TEST(TerminalTest, AFileIsNoTerminalAndAPseudoTerminalIsOne) {
  const Variable term("TERM", "xterm");
  const PseudoTerminal terminal(80);
  EXPECT_TRUE(IsTerminal(terminal.stream()));
  EXPECT_FALSE(IsTerminal(AFile().get()));
}

TEST(TerminalTest, ADumbOrNamelessTerminalIsNotDrawnOn) {
  const PseudoTerminal terminal(80);
  for (const auto& name : {std::optional<std::string>("dumb"), {""}, {}}) {
    const Variable term("TERM", name);
    EXPECT_FALSE(IsTerminal(terminal.stream()));
    EXPECT_FALSE(WantsColour(terminal.stream()));
  }
}

TEST(TerminalTest, TheWidthIsTheTerminalsThenColumnsThen80) {
  const Variable columns("COLUMNS", "40");
  EXPECT_EQ(WidthOf(PseudoTerminal(132).stream()), 132);
  EXPECT_EQ(WidthOf(PseudoTerminal(1).stream()), 1);
  EXPECT_EQ(WidthOf(PseudoTerminal(0).stream()), 40);
  EXPECT_EQ(WidthOf(AFile().get()), 40);
  for (const char* nonsense : {"", "0", "-3", "wide", "40x"}) {
    const Variable bad("COLUMNS", nonsense);
    EXPECT_EQ(WidthOf(AFile().get()), 80) << nonsense;
  }
}

TEST(TerminalTest, VerdictsAreGreenAndRedWhereALineBegins) {
  const Variable term("TERM", "xterm");
  const Variable no_color("NO_COLOR", {});
  const PseudoTerminal terminal(80);
  EXPECT_EQ(Paint(kVerdicts, terminal.stream()),
            "\033[32mPASS\033[0m memory\n  FAIL indented\n"
            "\033[31mFAIL\033[0m bits, no PASS\nrest");
  EXPECT_EQ(Paint("PASS\n\n", terminal.stream()), "\033[32mPASS\033[0m\n\n");
}

TEST(TerminalTest, NoColourForFilesNorWhereItIsNotWanted) {
  const Variable term("TERM", "xterm");
  const PseudoTerminal terminal(80);
  EXPECT_EQ(Paint(kVerdicts, AFile().get()), kVerdicts);
  const Variable no_color("NO_COLOR", "1");
  EXPECT_EQ(Paint(kVerdicts, terminal.stream()), kVerdicts);
  const Variable empty("NO_COLOR", "");
  EXPECT_TRUE(WantsColour(terminal.stream()));
}

TEST(TerminalTest, CharactersAreCutWhole) {
  EXPECT_EQ(CutToColumns("abc", 2), "ab");
  EXPECT_EQ(CutToColumns("abc", 3), "abc");
  EXPECT_EQ(CutToColumns("abc", 0), "");
  EXPECT_EQ(CutToColumns("3 \u00b5s", 3), "3 \u00b5");
  EXPECT_EQ(CutToColumns("\u20ac\u20ac", 1), "\u20ac");
}

}  // namespace
}  // namespace trainsys
