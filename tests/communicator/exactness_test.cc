// Every operation, dtype, reduction, number of ranks and shape against a
// serial fold: equal bits, and not a byte more written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/collectives/oracle.h"

namespace collectives {
namespace {

struct Case {
  DType dtype;
  ReduceOp op;
  std::vector<int64_t> counts;
  int64_t elems;
  std::vector<Bytes> inputs;  // of each rank
  Bytes folded;

  int64_t OffsetOf(int rank) const {
    int64_t offset = 0;
    for (int r = 0; r < rank; ++r) offset += counts[static_cast<size_t>(r)];
    return offset;
  }
  int64_t CountOf(int rank) const { return counts[static_cast<size_t>(rank)]; }
  const Bytes& InputOf(int rank) const {
    return inputs[static_cast<size_t>(rank)];
  }
  Bytes PartOf(int rank) const {
    return Slice(folded, dtype, OffsetOf(rank), CountOf(rank));
  }
};

// How `elems` are split: as evenly as possible, all on the last rank, or
// uneven with nothing for every third rank.
std::vector<int64_t> Split(int64_t elems, int ranks, int kind) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks), 0);
  if (kind == 1) {
    counts.back() = elems;
    return counts;
  }
  int64_t left = elems;
  for (int r = 0; r < ranks; ++r) {
    const int64_t even = (elems + ranks - 1) / ranks;
    const int64_t uneven = r % 3 == 1 ? 0 : elems / (r + 2);
    const int64_t count = std::min(left, kind == 0 ? even : uneven);
    counts[static_cast<size_t>(r)] = count;
    left -= count;
  }
  counts.back() += left;
  return counts;
}

Case MakeCase(DType dtype, ReduceOp op, int ranks, int64_t elems, int kind) {
  Case c{dtype, op, Split(elems, ranks, kind), elems, {}, {}};
  for (int r = 0; r < ranks; ++r) {
    c.inputs.push_back(RandomValues(dtype, elems, 1000 * r + elems + kind));
  }
  c.folded = SerialFold(dtype, op, c.inputs);
  return c;
}

// One rank's part in a case. All collectives of a case are posted, then waited
// for in reverse; blocking ones wait as they are posted.
class CaseRun {
 public:
  CaseRun(Communicator& comm, const Case& c)
      : comm_(comm),
        case_(c),
        rank_(comm.rank()),
        root_(static_cast<int>(c.elems) % comm.ranks()),
        reduced_(c.dtype, c.InputOf(rank_)),
        scattered_from_(c.dtype, c.InputOf(rank_)),
        scattered_(c.dtype, c.CountOf(rank_)),
        scattered_in_place_(c.dtype, c.InputOf(rank_)),
        gathered_from_(c.dtype, c.PartOf(rank_)),
        gathered_(c.dtype, c.elems),
        gathered_in_place_(c.dtype, c.elems),
        broadcast_(c.dtype, c.InputOf(rank_)) {
    const Bytes part = c.PartOf(rank_);
    std::copy(
        part.begin(), part.end(),
        static_cast<std::byte*>(gathered_in_place_.At(c.OffsetOf(rank_))));
  }

  void Blocking() {
    comm_.AllReduce(All(reduced_), case_.op, "ar");
    comm_.ReduceScatter(All(scattered_from_), Part(scattered_), case_.counts,
                        case_.op, "rs");
    comm_.ReduceScatter(All(scattered_in_place_), InPlace(scattered_in_place_),
                        case_.counts, case_.op, "rs in place");
    comm_.AllGather(Part(gathered_from_), All(gathered_), case_.counts, "ag");
    comm_.AllGather(InPlace(gathered_in_place_), All(gathered_in_place_),
                    case_.counts, "ag in place");
    comm_.Broadcast(All(broadcast_), root_, "bc");
  }

  void Asynchronous() {
    std::vector<Work> works;
    works.push_back(comm_.StartAllReduce(All(reduced_), case_.op, "ar"));
    works.push_back(comm_.StartReduceScatter(
        All(scattered_from_), Part(scattered_), case_.counts, case_.op, "rs"));
    works.push_back(comm_.StartReduceScatter(
        All(scattered_in_place_), InPlace(scattered_in_place_), case_.counts,
        case_.op, "rs in place"));
    works.push_back(comm_.StartAllGather(Part(gathered_from_), All(gathered_),
                                         case_.counts, "ag"));
    works.push_back(comm_.StartAllGather(InPlace(gathered_in_place_),
                                         All(gathered_in_place_), case_.counts,
                                         "ag in place"));
    works.push_back(comm_.StartBroadcast(All(broadcast_), root_, "bc"));
    for (size_t i = works.size(); i > 0; --i) works[i - 1].Wait();
  }

  void Check() {
    const Case& c = case_;
    Expect(reduced_, c.folded, "all-reduce");
    Expect(scattered_from_, c.InputOf(rank_), "reduce-scatter's input");
    Expect(scattered_, c.PartOf(rank_), "reduce-scatter");
    Bytes in_place = c.InputOf(rank_);
    const Bytes part = c.PartOf(rank_);
    std::copy(part.begin(), part.end(),
              in_place.begin() + c.OffsetOf(rank_) * SizeOf(c.dtype));
    Expect(scattered_in_place_, in_place, "reduce-scatter in place");
    Expect(gathered_from_, part, "all-gather's input");
    Expect(gathered_, c.folded, "all-gather");
    Expect(gathered_in_place_, c.folded, "all-gather in place");
    Expect(broadcast_, c.InputOf(root_), "broadcast");
  }

 private:
  Buffer All(PoisonedBuffer& b) { return {b.data(), case_.dtype, case_.elems}; }
  Buffer Part(PoisonedBuffer& b) {
    return {b.data(), case_.dtype, case_.CountOf(rank_)};
  }
  Buffer InPlace(PoisonedBuffer& b) {
    return {b.At(case_.OffsetOf(rank_)), case_.dtype, case_.CountOf(rank_)};
  }
  void Expect(const PoisonedBuffer& b, const Bytes& expected,
              const char* what) {
    EXPECT_TRUE(b.Holds(expected) && b.IsPoisonIntact())
        << what << " of " << Name(case_.op) << " " << Name(case_.dtype) << " x "
        << case_.elems << ", rank " << rank_ << " of " << comm_.ranks();
  }

  Communicator& comm_;
  const Case& case_;
  const int rank_;
  const int root_;
  PoisonedBuffer reduced_;
  PoisonedBuffer scattered_from_, scattered_, scattered_in_place_;
  PoisonedBuffer gathered_from_, gathered_, gathered_in_place_;
  PoisonedBuffer broadcast_;
};

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage,
                             ReduceOp::kProduct, ReduceOp::kMin,
                             ReduceOp::kMax};

class ExactnessTest : public testing::TestWithParam<std::tuple<int, DType>> {};

std::vector<Case> Cases(int ranks, DType dtype) {
  std::vector<Case> cases;
  const int64_t several_chunks = (int64_t{320} << 10) / SizeOf(dtype) + 1;
  int kind = 0;
  for (ReduceOp op : kOps) {
    if (op == ReduceOp::kAverage && IsInteger(dtype)) continue;
    for (int64_t elems : {int64_t{0}, int64_t{1}, int64_t{ranks - 1},
                          int64_t{ranks}, int64_t{ranks + 1}, int64_t{1001}}) {
      const int kinds = elems == 0 ? 1 : 3;
      for (int k = 0; k < kinds; ++k) {
        cases.push_back(MakeCase(dtype, op, ranks, elems, k));
      }
    }
    if (op != ReduceOp::kSum && op != ReduceOp::kMax) continue;
    cases.push_back(MakeCase(dtype, op, ranks, several_chunks, kind++ % 3));
  }
  return cases;
}

TEST_P(ExactnessTest, EveryOperationGivesTheBitsOfASerialFold) {
  const auto [ranks, dtype] = GetParam();
  const std::vector<Case> cases = Cases(ranks, dtype);
  RunRanksHere({.ranks = ranks}, [&cases](Communicator& comm) {
    for (const Case& c : cases) {
      CaseRun blocking(comm, c);
      blocking.Blocking();
      blocking.Check();
      CaseRun asynchronous(comm, c);
      asynchronous.Asynchronous();
      asynchronous.Check();
    }
  });
}

// ThreadSanitizer looks at threads, to which a dtype is only a size.
#if defined(__SANITIZE_THREAD__)
const auto kDTypes = testing::Values(DType::kF64, DType::kF16, DType::kU8);
#else
const auto kDTypes =
    testing::Values(DType::kF64, DType::kF32, DType::kBF16, DType::kF16,
                    DType::kI64, DType::kI32, DType::kU8);
#endif

INSTANTIATE_TEST_SUITE_P(AllReduceToBroadcast, ExactnessTest,
                         testing::Combine(testing::Values(1, 2, 3, 4, 5, 7, 8),
                                          kDTypes),
                         [](const auto& info) {
                           return "ranks" +
                                  std::to_string(std::get<0>(info.param)) +
                                  "_" +
                                  std::string(Name(std::get<1>(info.param)));
                         });

TEST(AllReduceTest, NanOnAnyRankReachesEveryRankThroughMinAndMax) {
  RunRanksHere({.ranks = 4}, [](Communicator& comm) {
    for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      // Element i: rank i has the NaN; the last element has none.
      std::vector<float> x(5, static_cast<float>(comm.rank()));
      x[static_cast<size_t>(comm.rank())] =
          std::numeric_limits<float>::quiet_NaN();
      comm.AllReduce(AsBuffer(std::span(x)), op, "x");
      for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(x[i])) << i;
      EXPECT_EQ(x[4], op == ReduceOp::kMin ? 0 : 3);
    }
  });
}

TEST(AllReduceTest, SomeMayBlockWhileOthersDoNot) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    std::vector<int64_t> x(100'000, comm.rank() + 1);
    for (size_t i = 0; i < x.size(); ++i) x[i] += static_cast<int64_t>(i);
    const Buffer buffer = AsBuffer(std::span(x));
    if (comm.rank() == 1) {
      comm.StartAllReduce(buffer, ReduceOp::kSum, "x").Wait();
    } else {
      comm.AllReduce(buffer, ReduceOp::kSum, "x");
    }
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x[i], 6 + 3 * static_cast<int64_t>(i));
    }
  });
}

TEST(DeterminismTest, TheSameBitsInEveryRun) {
  std::vector<float> first;
  for (int run = 0; run < 20; ++run) {
    std::vector<float> result;
    RunRanksHere({.ranks = 4}, [&](Communicator& comm) {
      const Bytes values = RandomValues(DType::kF32, 50'001, comm.rank());
      PoisonedBuffer buffer(DType::kF32, values);
      comm.AllReduce({buffer.data(), DType::kF32, 50'001}, ReduceOp::kAverage,
                     "x");
      if (comm.rank() != run % 4) return;
      const auto* data = static_cast<const float*>(buffer.data());
      result.assign(data, data + 50'001);
    });
    if (run == 0) first = result;
    EXPECT_EQ(result, first) << "run " << run;
  }
}

}  // namespace
}  // namespace collectives
