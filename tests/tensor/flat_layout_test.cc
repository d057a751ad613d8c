#include "trainsys/tensor/flat_layout.h"

#include <gtest/gtest.h>

namespace trainsys {
namespace {

using Elems = std::vector<int64_t>;

TEST(FlatLayoutTest, EveryTensorStartsOn64BytesRightBehindTheOneBefore) {
  const Elems elems{1, 0, 15, 16, 17, 0, 1000, 7, 31, 32, 33, 0};
  for (int64_t elem_bytes : {1, 2, 4, 8}) {
    const FlatLayout layout = LayOut(elems, elem_bytes);
    ASSERT_EQ(layout.offsets.size(), elems.size());
    int64_t end = 0;
    for (size_t i = 0; i < elems.size(); ++i) {
      EXPECT_EQ(layout.offsets[i] * elem_bytes % kTensorAlignmentBytes, 0);
      EXPECT_GE(layout.offsets[i], end);
      EXPECT_LT((layout.offsets[i] - end) * elem_bytes, kTensorAlignmentBytes);
      end = layout.offsets[i] + elems[i];
    }
    EXPECT_EQ(layout.elems, AlignedElems(end, elem_bytes));
  }
}

TEST(FlatLayoutTest, FloatsStandOnMultiplesOfSixteen) {
  const FlatLayout layout = LayOut(Elems{5, 16, 0, 17}, /*elem_bytes=*/4);
  EXPECT_EQ(layout.offsets, (Elems{0, 16, 32, 32}));
  EXPECT_EQ(layout.elems, 64);
}

TEST(FlatLayoutTest, NoTensorsAndEmptyTensorsTakeNoRoom) {
  EXPECT_EQ(LayOut({}, 4).elems, 0);
  EXPECT_EQ(LayOut(Elems{0, 0, 0}, 4).elems, 0);
  EXPECT_EQ(LayOut(Elems{0, 0, 0}, 4).offsets, (Elems{0, 0, 0}));
}

TEST(FlatLayoutTest, ElementsAreRoundedUpToWholeAlignments) {
  EXPECT_EQ(AlignedElems(0, 4), 0);
  EXPECT_EQ(AlignedElems(1, 4), 16);
  EXPECT_EQ(AlignedElems(16, 4), 16);
  EXPECT_EQ(AlignedElems(17, 8), 24);
  EXPECT_EQ(AlignedElems((int64_t{1} << 40) + 1, 1), (int64_t{1} << 40) + 64);
}

}  // namespace
}  // namespace trainsys
