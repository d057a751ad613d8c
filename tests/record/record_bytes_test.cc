#include "collectives/record/record_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/errors.h"

namespace collectives {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

auto Fields(const Record& r) {
  return std::tie(r.rank, r.channel, r.sequence, r.operation, r.reduce_op,
                  r.dtype, r.elems, r.bytes, r.sent_bytes, r.label, r.is_async,
                  r.is_recomputed, r.state, r.posted_ns, r.matched_ns,
                  r.done_ns, r.wait_began_ns, r.wait_ended_ns);
}

auto Fields(const PhaseRecord& p) {
  return std::tie(p.name, p.step, p.begin_ns, p.end_ns);
}

void ExpectEqual(const Recorder& a, const Recorder& b) {
  EXPECT_EQ(a.rank(), b.rank());
  EXPECT_EQ(a.lost(), b.lost());
  EXPECT_EQ(a.lost_phases(), b.lost_phases());
  EXPECT_EQ(a.clock().offset_ns, b.clock().offset_ns);
  EXPECT_EQ(a.clock().error_ns, b.clock().error_ns);
  const auto equal = [](const auto& x, const auto& y) {
    return Fields(x) == Fields(y);
  };
  const std::vector<Record> records_a = a.Records();
  const std::vector<Record> records_b = b.Records();
  EXPECT_TRUE(std::ranges::equal(records_a, records_b, equal));
  EXPECT_TRUE(std::ranges::equal(a.Phases(), b.Phases(), equal));
}

// Every field has a value of its own, and none its default.
Record Full(int64_t base) {
  Record record;
  record.channel = "ddp";
  record.sequence = static_cast<uint64_t>(base);
  record.operation = Operation::kDuplicate;
  record.reduce_op = ReduceOp::kMax;
  record.dtype = DType::kF16;
  record.elems = base + 1;
  record.bytes = base + 2;
  record.sent_bytes = base + 3;
  record.label = "bucket " + std::to_string(base) + " \xff";  // no UTF-8
  record.is_async = true;
  record.is_recomputed = true;
  record.state = RecordState::kFailed;
  record.posted_ns = base + 4;
  record.matched_ns = -base;
  record.done_ns = base + 5;
  record.wait_began_ns = base + 6;
  record.wait_ended_ns = std::numeric_limits<int64_t>::max();
  return record;
}

Recorder FullRecorder() {
  RecorderParts parts;
  parts.rank = 3;
  parts.records = {Full(10), Full(1000), Full(int64_t{1} << 40)};
  parts.lost = 5;
  parts.phases = {{"step", 7, 100, 200}, {"forward", -1, -5, 0}};
  parts.lost_phases = 11;
  parts.clock = {-70000, 300};
  return Recorder(parts);
}

TEST(RecordBytesTest, AFullRecorderComesBackWithEveryField) {
  const Recorder recorder = FullRecorder();
  ASSERT_EQ(recorder.Records()[2].label, Full(int64_t{1} << 40).label);
  ExpectEqual(recorder, FromBytes(ToBytes(recorder)));
}

TEST(RecordBytesTest, ARingThatHasWrappedComesBackOldestFirst) {
  Recorder recorder(2, 4);
  for (int64_t i = 1; i <= 10; ++i) recorder.Add(Full(i));
  for (int64_t i = 0; i < 20; ++i) recorder.AddPhase({"step", i, i, i + 1});
  ASSERT_EQ(recorder.lost(), 6U);
  ASSERT_GT(recorder.lost_phases(), 0U);
  ExpectEqual(recorder, FromBytes(ToBytes(recorder)));
}

TEST(RecordBytesTest, AnEmptyRecorderComesBack) {
  ExpectEqual(Recorder(0), FromBytes(ToBytes(Recorder(0))));
}

TEST(RecordBytesTest, AnEmptyRingHasStillLostItsRecords) {
  Recorder recorder(1, 0);
  for (int64_t i = 0; i < 3; ++i) recorder.Add(Full(i));
  const Recorder back = FromBytes(ToBytes(recorder));
  EXPECT_EQ(back.lost(), 3U);
  EXPECT_TRUE(back.Records().empty());
}

TEST(RecordBytesTest, ARecordTakesAboutAHundredBytes) {
  Recorder recorder(0);
  const size_t empty = ToBytes(recorder).size();
  Record record = Full(int64_t{1} << 50);
  record.matched_ns = record.posted_ns;
  for (int i = 0; i < 100; ++i) recorder.Add(record);
  EXPECT_LT((ToBytes(recorder).size() - empty) / 100, 140U);
}

TEST(RecordBytesTest, BytesThatAreCutShortAreAnError) {
  const Bytes bytes = ToBytes(FullRecorder());
  for (size_t length = 0; length < bytes.size(); ++length) {
    // A copy of its own, so that AddressSanitizer sees its end.
    const Bytes cut(bytes.begin(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THROW(FromBytes(cut), Error) << length;
  }
}

TEST(RecordBytesTest, BytesBeyondTheEndAreAnError) {
  Bytes bytes = ToBytes(FullRecorder());
  bytes.push_back(std::byte{0});
  EXPECT_THROW(FromBytes(bytes), Error);
}

// What FromBytes makes of wrong bytes: an Error, or a Recorder that is sound.
bool IsError(const Bytes& bytes) {
  try {
    const Recorder recorder = FromBytes(bytes);
    for (const Record& record : recorder.Records()) {
      EXPECT_FALSE(Name(record.operation).empty());
      EXPECT_EQ(record.rank, recorder.rank());
    }
    ExpectEqual(recorder, FromBytes(ToBytes(recorder)));
    return false;
  } catch (const Error&) {
    return true;
  }
}

TEST(RecordBytesTest, EveryOtherValueOfAByteIsAnErrorOrASoundRecorder) {
  const Bytes bytes = ToBytes(FullRecorder());
  int num_errors = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int flip = 1; flip < 256; ++flip) {
      Bytes wrong = bytes;
      wrong[i] ^= static_cast<std::byte>(flip);
      num_errors += IsError(wrong) ? 1 : 0;
    }
  }
  EXPECT_GT(num_errors, 1000);
}

TEST(RecordBytesTest, RandomBytesAreErrors) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    Bytes bytes(random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    EXPECT_TRUE(IsError(bytes)) << round;
  }
}

TEST(RecordBytesTest, DeepNestingIsAnErrorAndNoStackOverflow) {
  EXPECT_TRUE(IsError(Bytes(10'000'000, std::byte{0x81})));
}

TEST(RecordBytesTest, AHugeLengthTakesNoMemory) {
  Bytes array(9, std::byte{0xff});
  array[0] = std::byte{0x9b};  // an array of 2^64 - 1 values
  EXPECT_TRUE(IsError(array));
  array[0] = std::byte{0x7b};  // a text as long
  EXPECT_TRUE(IsError(array));
}

TEST(RecordBytesTest, AnotherVersionIsNamed) {
  Bytes bytes = ToBytes(FullRecorder());
  const auto version = std::find(bytes.begin(), bytes.end(), std::byte{2});
  ASSERT_LT(version - bytes.begin(), 4);
  *version = std::byte{9};
  EXPECT_THAT([&] { FromBytes(bytes); },
              ThrowsMessage<Error>(AllOf(HasSubstr("version 9, expected 2"),
                                         Not(HasSubstr("\n")))));
}

}  // namespace
}  // namespace collectives
