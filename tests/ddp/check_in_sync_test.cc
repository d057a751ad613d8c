#include "trainsys/ddp/check_in_sync.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "tests/backend/backend.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::RunRanksHere;
using Tensors = std::vector<at::Tensor>;

TEST(CheckInSyncTest, EqualTensorsAreInSyncWhateverTheRanks) {
  for (int ranks : {1, 2, 3, 4, 5, 7, 8}) {
    RunRanksHere({.ranks = ranks}, [](Communicator& comm) {
      const Tensors tensors{at::arange(10, at::kFloat), at::empty({0})};
      EXPECT_TRUE(CheckInSync(tensors, comm).empty());
    });
  }
}

TEST(CheckInSyncTest, EveryRankSeesWhichTensorsDifferOnWhichRanks) {
  RunRanksHere({.ranks = 4}, [](Communicator& comm) {
    const int rank = comm.rank();
    Tensors tensors(3);
    for (at::Tensor& t : tensors) t = at::arange(10, at::kFloat);
    if (rank == 2) tensors[1][9] += 1;
    tensors[2][0] = rank == 0 ? 1 : 0;
    const auto differences = CheckInSync(tensors, comm);
    ASSERT_EQ(differences.size(), 2);
    EXPECT_EQ(differences[0].index, 1);
    EXPECT_EQ(differences[0].ranks, (std::vector<int>{2}));
    EXPECT_EQ(differences[1].index, 2);
    EXPECT_EQ(differences[1].ranks, (std::vector<int>{1, 2, 3}));
    EXPECT_EQ(Describe(differences, {"a", "b", "c"}),
              "2 of 3 tensors differ from rank 0: [b on rank 2] [c on rank 1 2 "
              "3]");
  });
}

TEST(CheckInSyncTest, ZerosOfBothSignsAreNotInSync) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    const Tensors zeros{at::full({2}, comm.rank() == 0 ? 0.0 : -0.0)};
    EXPECT_EQ(CheckInSync(zeros, comm).size(), 1);
  });
}

TEST(CheckInSyncTest, NoTensorsAreInSync) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    EXPECT_TRUE(CheckInSync({}, comm).empty());
    EXPECT_EQ(Describe({}, {}), "");
  });
}

}  // namespace
}  // namespace trainsys
