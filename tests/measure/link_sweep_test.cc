#include "trainsys/measure/link_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/backend/backend.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Operation;
using collectives::Record;
using ::testing::ElementsAre;

TEST(LinkSizesTest, ArePowersOfTwoUpToTheLargest) {
  EXPECT_THAT(LinkSizes(20'000), ElementsAre(4096, 8192, 16'384, 20'000));
  EXPECT_THAT(LinkSizes(8192), ElementsAre(4096, 8192));
  EXPECT_THAT(LinkSizes(8190), ElementsAre(4096, 8192));
  EXPECT_THAT(LinkSizes(10), ElementsAre(12));
}

TEST(TimeAllReducesTest, EverySizeIsAveragedAsOftenAndRanksAgree) {
  const std::vector<int64_t> sizes{4096, 262'144, 2 << 20};
  std::vector<std::vector<LinkSample>> seen(3);
  const auto recorders =
      collectives::RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
        seen[static_cast<size_t>(comm.rank())] = TimeAllReduces(comm, sizes, 2);
      });
  ASSERT_EQ(seen[0].size(), 3);
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(seen[0][s].bytes, sizes[s]);
    EXPECT_GT(seen[0][s].us, 0);
    for (const auto& others : seen) EXPECT_EQ(others[s].us, seen[0][s].us);
  }
  std::map<int64_t, int> calls;
  for (const Record& record : recorders[0].Records()) {
    if (record.label == "alone") ++calls[record.bytes];
  }
  // A warm-up and two turns; small ones back to back.
  EXPECT_THAT(calls, ElementsAre(std::pair(4096, 48), std::pair(262'144, 12),
                                 std::pair(2 << 20, 3)));
}

}  // namespace
}  // namespace trainsys
