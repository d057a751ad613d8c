#include "trainsys/data/stories.h"

#include <gtest/gtest.h>

#include <cctype>
#include <set>

namespace trainsys {
namespace {

// FNV-1a, to pin the bytes.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001B3u;
  return hash;
}

TEST(StoriesTest, BytesAreTheSameEverywhere) {
  EXPECT_EQ(Hash(MakeStories(1, 1 << 20)), 9061889440284654817u);
}

TEST(StoriesTest, LengthIsExactAndAPrefixOfTheLongerText) {
  const std::string text = MakeStories(5, 10'000);
  for (size_t bytes : {0, 1, 500, 9'999, 10'000}) {
    EXPECT_EQ(MakeStories(5, bytes), text.substr(0, bytes));
  }
}

TEST(StoriesTest, SeedsGiveDifferentStories) {
  EXPECT_NE(MakeStories(1, 1000), MakeStories(2, 1000));
}

TEST(StoriesTest, TextIsPrintableAndHasNoPlaceholderLeft) {
  for (char c : MakeStories(3, 200'000)) {
    ASSERT_TRUE(c == '\n' || std::isprint(static_cast<unsigned char>(c)));
    ASSERT_TRUE(c != '{' && c != '}');
  }
}

TEST(StoriesTest, AStoryRarelyRepeats) {
  const std::string text = MakeStories(4, 1 << 20);
  std::set<std::string> stories;
  size_t count = 0;
  for (size_t from = 0, to; (to = text.find("\n\n", from)) != text.npos;
       from = to + 2, ++count) {
    stories.insert(text.substr(from, to - from));
  }
  EXPECT_GT(count, 1000u);
  EXPECT_EQ(stories.size(), count);
}

}  // namespace
}  // namespace trainsys
