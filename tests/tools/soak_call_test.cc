// The soak's check notices one wrong bit anywhere, and says where it was.
#include "tools/soak/soak_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/errors.h"
#include "collectives/shm/run_ranks.h"

namespace trainsys {
namespace {

using collectives::Call;
using collectives::Communicator;
using collectives::Work;
using ::testing::HasSubstr;

// Another communicator, of which the first bit after each result is flipped, or
// the first of the result.
class FlippingCommunicator final : public Communicator {
 public:
  enum class Where { kFirst, kBehind };
  FlippingCommunicator(Communicator& inner, Where where)
      : inner_(inner), where_(where) {}

  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  const std::string& channel() const override { return inner_.channel(); }
  collectives::Recorder& recorder() override { return inner_.recorder(); }
  std::unique_ptr<Communicator> Duplicate(std::string_view name) override {
    return inner_.Duplicate(name);
  }
  Work Post(Call call) override {
    const bool scatters =
        call.operation == collectives::Operation::kReduceScatter;
    const int64_t elems =
        scatters ? call.counts[static_cast<size_t>(rank())] : call.elems;
    auto* out = static_cast<std::byte*>(call.output);
    has_flipped_ = out != nullptr && (where_ == Where::kBehind || elems > 0);
    if (where_ == Where::kBehind) {
      out += elems * collectives::SizeOf(call.dtype);
    }
    inner_.Post(std::move(call)).Wait();
    if (has_flipped_) *out ^= std::byte{1};
    return Work();
  }

  bool has_flipped() const { return has_flipped_; }

 private:
  Communicator& inner_;
  const Where where_;
  bool has_flipped_ = false;
};

std::string Complaint(const SoakCall& call) {
  try {
    call.Check();
  } catch (const collectives::Error& e) {
    return e.what();
  }
  return "";
}

// Two hundred are of every operation, type and reduction.
void CheckAll(FlippingCommunicator::Where where) {
  const SoakValues values(3);
  collectives::RunRanks({.ranks = 3}, [&](Communicator& comm) {
    FlippingCommunicator flipping(comm, where);
    int num_noticed = 0;
    for (uint64_t i = 0; i < 200; ++i) {
      SoakCall right({3, 0, i, 3}, comm.rank(), values);
      right.PostAsync(comm).Wait();
      EXPECT_EQ(Complaint(right), "");
      SoakCall wrong({3, 0, i, 3}, comm.rank(), values);
      wrong.Post(flipping).Wait();
      if (!flipping.has_flipped()) continue;
      EXPECT_THAT(Complaint(wrong),
                  HasSubstr("channel 0, collective " + std::to_string(i)));
      ++num_noticed;
    }
    EXPECT_GT(num_noticed, 100);
  });
}

TEST(SoakCallTest, NoticesAWrongBitInTheResult) {
  CheckAll(FlippingCommunicator::Where::kFirst);
}

TEST(SoakCallTest, NoticesAWrongBitBehindTheResult) {
  CheckAll(FlippingCommunicator::Where::kBehind);
}

}  // namespace
}  // namespace trainsys
