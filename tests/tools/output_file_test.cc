#include "tools/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::Error;
using collectives::InvalidArgument;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() { std::filesystem::create_directory(folder_); }
  ~OutputFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }
  std::string Content(const std::string& name) const {
    std::ostringstream content;
    content << std::ifstream(Path(name)).rdbuf();
    return content.str();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  const std::string folder_ = testing::TempDir() + "/output_file_test";
};

TEST_F(OutputFileTest, NothingIsThereBeforeTheEnd) {
  const OutputFile file("--json", Path("a"));
  EXPECT_TRUE(file.is_wanted());
  EXPECT_THAT(Names(), IsEmpty());
  file.Write("all of it");
  EXPECT_THAT(Names(), ElementsAre("a"));
  EXPECT_EQ(Content("a"), "all of it");
}

TEST_F(OutputFileTest, AnOldFileStaysUntilThenWhateverItsName) {
  std::ofstream(Path("old")) << "old";
  std::filesystem::create_symlink("old", Path("link"));
  const OutputFile file("--json", Path("link"));
  EXPECT_EQ(Content("old"), "old");
  file.Write("new");
  EXPECT_EQ(Content("old"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
}

TEST_F(OutputFileTest, AnEmptyPathIsNoFile) {
  const OutputFile file("--json", "");
  EXPECT_FALSE(file.is_wanted());
  file.Write("text");
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(OutputFileTest, WhatCannotBeWrittenIsRefusedBeforeTheRun) {
  EXPECT_THROW(OutputFile("--json", Path("no/such")), InvalidArgument);
  EXPECT_THROW(OutputFile("--json", folder_), InvalidArgument);
  EXPECT_THROW(OutputFile("--json", "/dev/null"), InvalidArgument);
}

TEST_F(OutputFileTest, AFailureAtTheEndIsAnErrorAndLeavesNothing) {
  const OutputFile file("--json", Path("a"));
  std::filesystem::create_directory(Path("a"));
  EXPECT_THROW(file.Write("text"), Error);
  EXPECT_THAT(Names(), ElementsAre("a"));
}

}  // namespace
}  // namespace trainsys
