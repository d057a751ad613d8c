// The bits of a serial fold, and the bytes that the header promises, over
// connections between threads.
#include "collectives/c10d/exact_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/c10d/local_mesh.h"
#include "tests/collectives/oracle.h"

namespace collectives {
namespace {

constexpr std::chrono::seconds kTimeout{60};

// The parts of the ranks, in pieces and single elements.
struct Shape {
  const char* name;
  std::vector<std::pair<int64_t, int64_t>> parts;
};

const Shape kShapes[] = {
    {"TwoNothing", {{0, 0}, {0, 0}}},
    {"TwoOneElement", {{0, 1}, {0, 0}}},
    {"TwoWholePieces", {{1, 0}, {2, 0}}},
    {"TwoLastPieceOfOne", {{2, 1}, {0, 7}}},
    {"ThreeUnevenWithNothingFirst", {{0, 0}, {2, 3}, {1, -1}}},
    {"ThreeAllOnTheLast", {{0, 0}, {0, 0}, {3, 5}}},
    {"FiveSmall", {{0, 3}, {0, 0}, {0, 100}, {0, 1}, {0, 17}}},
    {"EightInPieces",
     {{1, 1}, {0, 0}, {0, 9}, {1, -3}, {0, 0}, {1, 0}, {0, 1}, {0, 0}}},
};

class ExactTransportTest
    : public testing::TestWithParam<std::tuple<size_t, DType>> {
 protected:
  ExactTransportTest() {
    const Shape& shape = kShapes[std::get<0>(GetParam())];
    ranks_ = static_cast<int>(shape.parts.size());
    const int64_t piece = ExactTransport::PieceBytes(ranks_) / SizeOf(dtype_);
    for (const auto& [pieces, elems] : shape.parts) {
      counts_.push_back(pieces * piece + elems);
    }
    elems_ = SumOf(counts_);
    for (int r = 0; r < ranks_; ++r) {
      inputs_.push_back(RandomValues(dtype_, elems_, 100 + r));
    }
  }

  Call MakeCall(Operation operation) const {
    Call call;
    call.operation = operation;
    call.reduce_op = ReduceOp::kSum;
    call.dtype = dtype_;
    call.elems = elems_;
    call.label = "x";
    if (operation != Operation::kAllReduce &&
        operation != Operation::kBroadcast) {
      call.counts = counts_;
    }
    return call;
  }
  const Bytes& InputOf(int rank) const {
    return inputs_[static_cast<size_t>(rank)];
  }
  Bytes PartOf(const Bytes& all, int rank) const {
    return Slice(all, dtype_, OffsetOf(MakeCall(Operation::kAllGather), rank),
                 counts_[static_cast<size_t>(rank)]);
  }
  Bytes Folded() const { return SerialFold(dtype_, ReduceOp::kSum, inputs_); }
  static void Move(Mesh& mesh, Call call, const void* input, void* output) {
    call.input = input;
    call.output = output;
    ExactTransport(mesh, 0, kTimeout).Run(call);
  }

  const DType dtype_ = std::get<1>(GetParam());
  int ranks_ = 0;
  int64_t elems_ = 0;
  std::vector<int64_t> counts_;
  std::vector<Bytes> inputs_;
};

TEST_P(ExactTransportTest, AllReduceAndBroadcastGiveEveryRankTheWhole) {
  const Bytes folded = Folded();
  LocalHub hub(ranks_);
  hub.Run([&](Mesh& mesh) {
    PoisonedBuffer reduced(dtype_, InputOf(mesh.rank()));
    Move(mesh, MakeCall(Operation::kAllReduce), reduced.data(), reduced.data());
    EXPECT_TRUE(reduced.Holds(folded) && reduced.IsPoisonIntact());
    for (int root : {0, mesh.ranks() - 1}) {
      Call call = MakeCall(Operation::kBroadcast);
      call.root = root;
      PoisonedBuffer sent(dtype_, InputOf(mesh.rank()));
      Move(mesh, call, sent.data(), sent.data());
      EXPECT_TRUE(sent.Holds(InputOf(root)) && sent.IsPoisonIntact()) << root;
    }
  });
}

TEST_P(ExactTransportTest, ReduceScatterGivesEachItsPartAndLeavesTheInput) {
  const Bytes folded = Folded();
  LocalHub hub(ranks_);
  hub.Run([&](Mesh& mesh) {
    const int rank = mesh.rank();
    const Call call = MakeCall(Operation::kReduceScatter);
    PoisonedBuffer input(dtype_, InputOf(rank));
    PoisonedBuffer part(dtype_, counts_[static_cast<size_t>(rank)]);
    Move(mesh, call, input.data(), part.data());
    EXPECT_TRUE(part.Holds(PartOf(folded, rank)) && part.IsPoisonIntact());
    EXPECT_TRUE(input.Holds(InputOf(rank)) && input.IsPoisonIntact());

    const int64_t offset = OffsetOf(call, rank);
    Move(mesh, call, input.data(), input.At(offset));  // in place
    Bytes expected = InputOf(rank);
    const Bytes mine = PartOf(folded, rank);
    std::copy(mine.begin(), mine.end(),
              expected.begin() + offset * SizeOf(dtype_));
    EXPECT_TRUE(input.Holds(expected) && input.IsPoisonIntact());
  });
}

TEST_P(ExactTransportTest, AllGatherPutsEachPartInItsPlace) {
  LocalHub hub(ranks_);
  hub.Run([&](Mesh& mesh) {
    const Call call = MakeCall(Operation::kAllGather);
    const Bytes mine = PartOf(InputOf(0), mesh.rank());
    PoisonedBuffer part(dtype_, mine);
    PoisonedBuffer all(dtype_, elems_);
    Move(mesh, call, part.data(), all.data());
    EXPECT_TRUE(all.Holds(InputOf(0)) && all.IsPoisonIntact());
    EXPECT_TRUE(part.Holds(mine));

    PoisonedBuffer in_place(dtype_, elems_);
    auto* own =
        static_cast<std::byte*>(in_place.At(OffsetOf(call, mesh.rank())));
    std::copy(mine.begin(), mine.end(), own);
    Move(mesh, call, own, in_place.data());
    EXPECT_TRUE(in_place.Holds(InputOf(0)) && in_place.IsPoisonIntact());
  });
}

// ThreadSanitizer looks at threads, to which a dtype is only a size.
#if defined(__SANITIZE_THREAD__)
const auto kDTypes = testing::Values(DType::kF64);
#else
const auto kDTypes = testing::Values(DType::kF32, DType::kBF16, DType::kU8);
#endif

INSTANTIATE_TEST_SUITE_P(
    Shapes, ExactTransportTest,
    testing::Combine(testing::Range(size_t{0}, std::size(kShapes)), kDTypes),
    [](const auto& info) {
      return std::string(kShapes[std::get<0>(info.param)].name) + "_" +
             std::string(Name(std::get<1>(info.param)));
    });

// S = 4 x 64 KiB over 4 ranks, so that all parts are equal.
TEST(ExactTransportCostTest, EachRankSendsWhatTheHeaderSays) {
  static constexpr int kRanks = 4;
  static constexpr int64_t kPart = 64 << 10;
  static constexpr int64_t kAll = kRanks * kPart;
  const auto sent = [](Operation operation) {
    LocalHub hub(kRanks);
    hub.Run([&](Mesh& mesh) {
      Bytes all(kAll);
      Bytes part(kPart);
      Call call;
      call.operation = operation;
      call.dtype = DType::kU8;
      call.elems = kAll;
      call.root = 2;
      call.counts.assign(kRanks, kPart);
      call.input =
          operation == Operation::kAllGather ? part.data() : all.data();
      call.output =
          operation == Operation::kReduceScatter ? part.data() : all.data();
      ExactTransport(mesh, 0, kTimeout).Run(call);
    });
    std::vector<int64_t> parts;
    for (int r = 0; r < kRanks; ++r) {
      parts.push_back(hub.sent_bytes(r) / kPart);
    }
    return parts;
  };
  using Parts = std::vector<int64_t>;
  EXPECT_EQ(sent(Operation::kAllReduce), (Parts{6, 6, 6, 6}));
  EXPECT_EQ(sent(Operation::kReduceScatter), (Parts{3, 3, 3, 3}));
  EXPECT_EQ(sent(Operation::kAllGather), (Parts{3, 3, 3, 3}));
  EXPECT_EQ(sent(Operation::kBroadcast), (Parts{2, 2, 6, 2}));
}

TEST(ExactTransportCostTest, PiecesAreWholeCacheLinesAndScratchStaysSmall) {
  for (int ranks = 2; ranks <= 1024; ++ranks) {
    const int64_t piece = ExactTransport::PieceBytes(ranks);
    EXPECT_EQ(piece % 64, 0);
    EXPECT_GE(piece, 64 << 10);
    if (ranks <= 128) {
      EXPECT_LE(2 * ranks * piece, 16 << 20) << ranks;
    }
  }
}

Call SumOfBytes(Bytes& data) {
  Call call;
  call.operation = Operation::kAllReduce;
  call.dtype = DType::kU8;
  call.elems = static_cast<int64_t>(data.size());
  call.input = call.output = data.data();
  return call;
}

TEST(ExactTransportFailureTest, APeerThatNeverSendsIsNamedAtTheDeadline) {
  LocalHub hub(2);
  Bytes data(1000);
  try {
    ExactTransport(hub.mesh(0), 0, std::chrono::milliseconds(50))
        .Run(SumOfBytes(data));
    FAIL();
  } catch (const LinkError& e) {
    EXPECT_EQ(e.kind(), LinkError::Kind::kTimeout);
    EXPECT_EQ(e.peer(), 1);
  }
}

TEST(ExactTransportFailureTest, APeerThatClosesIsLostAndOnesOwnSideIsClosed) {
  LocalHub hub(2);
  hub.mesh(1).Close();
  Mesh& mesh = hub.mesh(0);
  Bytes data(1000);
  const auto kind = [&] {
    try {
      ExactTransport(mesh, 0, kTimeout).Run(SumOfBytes(data));
    } catch (const LinkError& e) {
      EXPECT_EQ(e.peer(), e.kind() == LinkError::Kind::kLost ? 1 : 0);
      return e.kind();
    }
    return LinkError::Kind::kTimeout;
  };
  EXPECT_EQ(kind(), LinkError::Kind::kLost);
  mesh.Close();
  EXPECT_EQ(kind(), LinkError::Kind::kClosed);
}

}  // namespace
}  // namespace collectives
