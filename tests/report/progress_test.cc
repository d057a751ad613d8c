#include "trainsys/report/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace trainsys {
namespace {

using ::testing::MatchesRegex;
using ::testing::SizeIs;
using ::testing::StartsWith;

// What a run of `num_steps` steps prints into a file.
std::string Printed(int64_t num_steps) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(),
                                                             std::fclose);
  {
    Progress progress(num_steps, /*tokens_per_step=*/4096, file.get());
    for (int64_t step = 0; step < num_steps; ++step) {
      progress.Show(step, 5.5 - 0.25 * static_cast<double>(step));
    }
  }
  std::string text(static_cast<size_t>(std::ftell(file.get())), '\0');
  std::rewind(file.get());
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  return text;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(ProgressTest, AFileGetsPlainLinesForTenthsOfTheRunAndItsEnd) {
  const auto lines = Lines(Printed(20));
  ASSERT_THAT(lines, SizeIs(11));
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_THAT(lines[i],
                StartsWith("step " + std::to_string(2 * i + 1) + "/20 | "));
  }
  EXPECT_THAT(lines[10], StartsWith("step 20/20 | loss 0.7500 | "));
}

TEST(ProgressTest, ALineHasStepLossSpeedAndTimeLeft) {
  for (const std::string& line : Lines(Printed(3))) {
    EXPECT_THAT(line, MatchesRegex("step ./3 \\| loss [0-9]+\\.[0-9]+ \\| "
                                   "[0-9]+ tokens/s \\| [0-9]+ s left"));
  }
}

TEST(ProgressTest, AFileGetsNoControlCharacters) {
  const std::string text = Printed(5);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(text.back(), '\n');
}

TEST(ProgressTest, AShortRunShowsEveryStep) {
  EXPECT_THAT(Lines(Printed(1)), SizeIs(1));
  EXPECT_THAT(Lines(Printed(7)), SizeIs(7));
}

}  // namespace
}  // namespace trainsys
