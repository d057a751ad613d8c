#include "trainsys/terminal/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/terminal/pseudo_terminal.h"

namespace trainsys {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int64_t kAtOnce = 0;
constexpr int64_t kNever = int64_t{1} << 60;
constexpr char kErase[] = "\r\033[K";

using Script = std::function<void(Progress&)>;

// What is printed into a file.
std::string Printed(const Script& script, int64_t quiet_ns = kAtOnce) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(),
                                                             std::fclose);
  {
    Progress progress(file.get(), quiet_ns);
    script(progress);
  }
  std::string text(static_cast<size_t>(std::ftell(file.get())), '\0');
  std::rewind(file.get());
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  return text;
}

// What is drawn on a terminal.
std::string Drawn(unsigned short columns, const Script& script,
                  int64_t quiet_ns = kAtOnce) {
  const Variable term("TERM", "xterm");
  PseudoTerminal terminal(columns);
  {
    Progress progress(terminal.stream(), quiet_ns);
    script(progress);
  }
  return terminal.Take();
}

// Each part as it is done.
Script Steps(int64_t all) {
  return [all](Progress& progress) {
    for (int64_t done = 1; done <= all; ++done) {
      progress.Show("step", done, all, "loss 2.5");
    }
  };
}

// The drawn lines: what stands between two erasures.
std::vector<std::string> Drawings(std::string text) {
  std::vector<std::string> drawings;
  while (text.starts_with(kErase)) {
    const size_t end = text.find('\r', 1);
    drawings.push_back(text.substr(4, end == text.npos ? end : end - 4));
    text = end == text.npos ? "" : text.substr(end);
  }
  EXPECT_EQ(text, "");
  return drawings;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(ProgressTest, AFileGetsPlainLinesForTheFirstPartTheTenthsAndTheEnd) {
  const auto lines = Lines(Printed(Steps(50)));
  ASSERT_THAT(lines, SizeIs(11));
  EXPECT_THAT(lines[0], StartsWith("step 1/50 | loss 2.5 | "));
  for (size_t i = 1; i < 11; ++i) {
    EXPECT_THAT(lines[i], StartsWith("step " + std::to_string(5 * i) + "/50 "));
  }
}

TEST(ProgressTest, AShortRunShowsEveryPart) {
  EXPECT_THAT(Lines(Printed(Steps(1))), SizeIs(1));
  EXPECT_THAT(Lines(Printed(Steps(7))), SizeIs(7));
}

TEST(ProgressTest, ALineHasTheDetailAndTheTimeLeftOnceAPartIsDone) {
  const auto lines = Lines(Printed([](Progress& progress) {
    progress.Show("memory", 0, 4, "ZeRO-2");
    progress.Show("memory", 2, 4, "ZeRO-2");
    progress.Show("memory", 3, 4);
  }));
  EXPECT_THAT(
      lines,
      ElementsAre("memory 0/4 | ZeRO-2",
                  MatchesRegex("memory 2/4 \\| ZeRO-2 \\| [0-9]+ s left"),
                  MatchesRegex("memory 3/4 \\| [0-9]+ s left")));
}

TEST(ProgressTest, EachPhaseIsCountedFromItsOwnFirstPart) {
  const auto lines = Lines(Printed([](Progress& progress) {
    for (const char* what : {"forward", "backward"}) {
      for (int64_t done = 0; done < 3; ++done) progress.Show(what, done, 30);
    }
  }));
  EXPECT_THAT(lines, ElementsAre("forward 0/30", "backward 0/30"));
}

TEST(ProgressTest, AFileGetsNoControlCharacters) {
  const std::string text = Printed(Steps(5));
  EXPECT_EQ(text.find_first_of("\r\033"), std::string::npos);
  EXPECT_EQ(text.back(), '\n');
}

TEST(ProgressTest, ADumbTerminalGetsTheLinesOfAFile) {
  const Variable term("TERM", "dumb");
  PseudoTerminal terminal(80);
  {
    Progress progress(terminal.stream(), kAtOnce);
    Steps(7)(progress);
  }
  const std::string text = terminal.Take();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7);
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST(ProgressTest, NothingIsSaidInTheQuietTime) {
  EXPECT_EQ(Printed(Steps(50), kNever), "");
  EXPECT_EQ(Drawn(80, Steps(50), kNever), "");
}

// 10,000 drawings would take a quarter of an hour.
TEST(ProgressTest, ATerminalGetsOneLineThatIsRarelyRedrawnAndGoneAtTheEnd) {
  const std::string text = Drawn(80, Steps(100'000));
  EXPECT_THAT(
      text, AllOf(StartsWith(kErase), EndsWith(kErase), Not(HasSubstr("\n"))));
  const auto drawings = Drawings(text);
  EXPECT_THAT(drawings[0], StartsWith("step 1/100000 | loss 2.5 | "));
  EXPECT_EQ(drawings.back(), "");
  EXPECT_LT(drawings.size(), 10'000);
}

TEST(ProgressTest, ANewPhaseIsDrawnAtOnce) {
  EXPECT_THAT(Drawings(Drawn(80,
                             [](Progress& progress) {
                               progress.Show("forward", 0, 3);
                               progress.Show("forward", 0, 3);
                               progress.Show("backward", 0, 3);
                             })),
              ElementsAre("forward 0/3", "backward 0/3", ""));
}

TEST(ProgressTest, ClearTakesTheLineAwayOnce) {
  EXPECT_THAT(Drawings(Drawn(80,
                             [](Progress& progress) {
                               progress.Clear();
                               progress.Show("forward", 0, 3);
                               progress.Clear();
                               progress.Clear();
                             })),
              ElementsAre("forward 0/3", ""));
}

TEST(ProgressTest, ALineNeverReachesTheLastColumnOfATerminal) {
  for (const unsigned short columns : {1, 2, 10, 40}) {
    for (const std::string& line : Drawings(Drawn(columns, Steps(20)))) {
      EXPECT_LT(line.size(), columns);
    }
  }
  EXPECT_EQ(Drawings(Drawn(10, Steps(20)))[0], "step 1/20");
}

TEST(ProgressTest, TheWidthOfATerminalThatDoesNotKnowIsThatOfColumns) {
  const Variable columns("COLUMNS", "8");
  EXPECT_EQ(Drawings(Drawn(0, Steps(20)))[0], "step 1/");
}

TEST(ProgressTest, AStreamThatTakesNothingEndsNoTraining) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> full(
      std::fopen("/dev/full", "w"), std::fclose);
  ASSERT_NE(full, nullptr);
  std::setvbuf(full.get(), nullptr, _IONBF, 0);
  Progress progress(full.get(), kAtOnce);
  EXPECT_NO_THROW(Steps(3)(progress));
}

}  // namespace
}  // namespace trainsys
