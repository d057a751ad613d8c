#include "trainsys/data/byte_dataset.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kContext = 16;

std::string Counting(int64_t bytes) {
  std::string text;
  for (int64_t i = 0; i < bytes; ++i) text += static_cast<char>(i % 251);
  return text;
}

std::string TempFile(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const collectives::InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ByteDatasetTest, PartsOfTheRanksConcatenateToTheWholeBatch) {
  const auto data = ByteDataset::FromBytes(Counting(1000), kContext);
  for (int64_t ranks : {1, 2, 3, 4, 5, 7, 8}) {
    constexpr int64_t kRows = 3;
    const Batch whole = data.Rows(1, 2, 0, ranks * kRows);
    std::vector<at::Tensor> tokens, targets;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const Batch part = data.Rows(1, 2, rank * kRows, kRows);
      tokens.push_back(part.tokens);
      targets.push_back(part.targets);
    }
    EXPECT_TRUE(at::equal(at::cat(tokens), whole.tokens)) << ranks;
    EXPECT_TRUE(at::equal(at::cat(targets), whole.targets)) << ranks;
  }
}

TEST(ByteDatasetTest, TargetsAreTheTokensShiftedByOneAndAllAreOfTheText) {
  const auto data = ByteDataset::FromBytes(Counting(1000), kContext);
  const Batch batch = data.Rows(0, 0, 0, 64);
  EXPECT_EQ(batch.tokens.sizes(), (at::IntArrayRef{64, kContext}));
  EXPECT_EQ(batch.tokens.scalar_type(), at::kLong);
  EXPECT_TRUE(at::equal(batch.tokens.narrow(1, 1, kContext - 1),
                        batch.targets.narrow(1, 0, kContext - 1)));
  // In this text every byte tells the next.
  EXPECT_TRUE(at::equal(batch.tokens.add(1).remainder(251), batch.targets));
}

TEST(ByteDatasetTest, BytesAbove127AreTokensAbove127) {
  const auto data = ByteDataset::FromBytes("\x7F\x80\xFF", 2);
  const Batch batch = data.Rows(0, 0, 0, 1);
  EXPECT_TRUE(
      at::equal(batch.tokens, at::tensor({127, 128}, at::kLong).view({1, 2})));
  EXPECT_TRUE(
      at::equal(batch.targets, at::tensor({128, 255}, at::kLong).view({1, 2})));
}

TEST(ByteDatasetTest, RowsDependOnSeedStepAndRowOnly) {
  const auto data = ByteDataset::FromBytes(Counting(100'003), kContext);
  const auto same = ByteDataset::FromBytes(Counting(100'003), kContext);
  const at::Tensor rows = data.Rows(1, 1, 0, 4).tokens;
  EXPECT_TRUE(at::equal(rows, same.Rows(1, 1, 0, 4).tokens));
  EXPECT_FALSE(at::equal(rows, data.Rows(2, 1, 0, 4).tokens));
  EXPECT_FALSE(at::equal(rows, data.Rows(1, 2, 0, 4).tokens));
  EXPECT_FALSE(at::equal(rows, data.Rows(1, 1, 4, 4).tokens));
}

TEST(ByteDatasetTest, EveryWindowOfAShortTextComesUp) {
  const auto data = ByteDataset::FromBytes(Counting(kContext + 4), kContext);
  const at::Tensor starts = data.Rows(0, 0, 0, 200).tokens.select(1, 0);
  EXPECT_EQ(starts.min().item<int64_t>(), 0);
  EXPECT_EQ(starts.max().item<int64_t>(), 3);
}

TEST(ByteDatasetTest, ShortestTextHasOneWindowAndNoRowsIsAnEmptyBatch) {
  const auto data = ByteDataset::FromBytes(Counting(kContext + 1), kContext);
  EXPECT_EQ(data.Rows(9, 9, 9, 1).targets[0][kContext - 1].item<int64_t>(),
            kContext);
  EXPECT_EQ(data.Rows(0, 0, 0, 0).tokens.sizes(),
            (at::IntArrayRef{0, kContext}));
}

TEST(ByteDatasetTest, FileAndItsBytesAreTheSameData) {
  const std::string bytes = Counting(5000);
  const auto file = ByteDataset::FromFile(TempFile("ok", bytes), kContext);
  const auto text = ByteDataset::FromBytes(bytes, kContext);
  EXPECT_EQ(file.num_bytes(), 5000);
  EXPECT_TRUE(
      at::equal(file.Rows(1, 1, 0, 8).tokens, text.Rows(1, 1, 0, 8).tokens));
}

TEST(ByteDatasetTest, UnusableFilesAreOneClearLine) {
  const auto error = [](const std::string& path) {
    return ErrorOf([&] { ByteDataset::FromFile(path, kContext); });
  };
  const std::string pipe = ::testing::TempDir() + "pipe";
  mkfifo(pipe.c_str(), 0600);
  EXPECT_THAT(error("/no/such/file"),
              AllOf(HasSubstr("/no/such/file"), HasSubstr("No such file")));
  EXPECT_THAT(error("/dev"), HasSubstr("is a directory"));
  EXPECT_THAT(error("/dev/zero"), HasSubstr("is a pipe or device"));
  EXPECT_THAT(error(pipe), HasSubstr("is a pipe or device"));
  EXPECT_THAT(error(TempFile("empty", "")),
              AllOf(HasSubstr("is empty"), HasSubstr("at least 17 bytes")));
  EXPECT_THAT(error(TempFile("short", Counting(kContext))),
              AllOf(HasSubstr("has 16 bytes"), HasSubstr("at least 17")));
  EXPECT_THAT(error("/no/such/file"), Not(HasSubstr("\n")));
}

TEST(ByteDatasetTest, ImpossibleNumbersAreRefused) {
  EXPECT_THAT(ErrorOf([] { ByteDataset::FromBytes("abc", 0); }),
              HasSubstr("context is 0"));
  EXPECT_THAT(ErrorOf([] { ByteDataset::FromBytes("", 2); }),
              HasSubstr("the text is empty"));
  const auto data = ByteDataset::FromBytes("abc", 2);
  EXPECT_THAT(ErrorOf([&] { data.Rows(0, -1, 0, 1); }), HasSubstr("step"));
  EXPECT_THAT(ErrorOf([&] { data.Rows(0, 0, -1, 1); }), HasSubstr("first_row"));
  EXPECT_THAT(ErrorOf([&] { data.Rows(0, 0, 0, -1); }), HasSubstr("num_rows"));
}

}  // namespace
}  // namespace trainsys
