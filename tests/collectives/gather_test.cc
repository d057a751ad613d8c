#include "collectives/gather.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/shm/run_ranks.h"

namespace collectives {
namespace {

class GatherTest : public ::testing::TestWithParam<int> {
 protected:
  void OnEveryRank(const RankFunction& fn) {
    RunRanks({.ranks = GetParam()}, fn);
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, GatherTest, ::testing::Values(1, 3, 4),
                         ::testing::PrintToStringParamName());

struct Facts {
  int64_t number;
  double share;
  bool operator==(const Facts&) const = default;
};

TEST_P(GatherTest, ValuesComeInRankOrderOnEveryRank) {
  OnEveryRank([](Communicator& comm) {
    const auto facts_of = [](int rank) {
      return Facts{rank * 1000 + 7, rank + 0.25};
    };
    const std::vector<Facts> all = Gather(comm, facts_of(comm.rank()), "facts");
    ASSERT_EQ(all.size(), static_cast<size_t>(comm.ranks()));
    for (int rank = 0; rank < comm.ranks(); ++rank) {
      EXPECT_EQ(all[static_cast<size_t>(rank)], facts_of(rank));
    }
  });
}

// Rank r gives `lengths(r)` bytes, no two ranks the same ones.
template <typename Lengths>
void ExpectBytesOfEveryRank(Communicator& comm, const Lengths& lengths) {
  const auto bytes_of = [&](int rank) {
    std::vector<std::byte> bytes(static_cast<size_t>(lengths(rank)));
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(17 * static_cast<size_t>(rank) + i);
    }
    return bytes;
  };
  const auto all = GatherBytes(comm, bytes_of(comm.rank()), "bytes");
  ASSERT_EQ(all.size(), static_cast<size_t>(comm.ranks()));
  for (int rank = 0; rank < comm.ranks(); ++rank) {
    EXPECT_EQ(all[static_cast<size_t>(rank)], bytes_of(rank));
  }
}

TEST_P(GatherTest, BytesMayBeOfAnyLengthOnEachRank) {
  OnEveryRank([](Communicator& comm) {
    ExpectBytesOfEveryRank(comm, [](int rank) { return 1001 * rank + 1; });
    // None on rank 0, then none on the odd ranks, then on any.
    ExpectBytesOfEveryRank(comm, [](int rank) { return 5 * rank; });
    ExpectBytesOfEveryRank(comm, [](int rank) { return rank % 2 ? 0 : 9; });
    ExpectBytesOfEveryRank(comm, [](int) { return 0; });
  });
}

TEST_P(GatherTest, TextsMayBeEmptyAndHoldAnyCharacter) {
  OnEveryRank([](Communicator& comm) {
    const auto text_of = [](int rank) {
      return rank == 0 ? std::string()
                       : std::string(static_cast<size_t>(rank), '\0') +
                             "rank " + std::to_string(rank);
    };
    const auto all = GatherText(comm, text_of(comm.rank()), "texts");
    ASSERT_EQ(all.size(), static_cast<size_t>(comm.ranks()));
    for (int rank = 0; rank < comm.ranks(); ++rank) {
      EXPECT_EQ(all[static_cast<size_t>(rank)], text_of(rank));
    }
  });
}

}  // namespace
}  // namespace collectives
