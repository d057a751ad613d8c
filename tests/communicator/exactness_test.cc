// Every operation, dtype, reduction, number of ranks, size and split against a
// serial fold, blocking and asynchronous, from and to memory that is not even
// aligned to its elements: equal bits, and not a byte more written.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/collectives/oracle.h"

namespace collectives {
namespace {

struct Case {
  DType dtype;
  ReduceOp op;
  std::vector<int64_t> counts;
  int64_t elems;
  int root;
  std::shared_ptr<const std::vector<Bytes>> inputs;  // of each rank
  Bytes folded;

  int64_t OffsetOf(int rank) const {
    int64_t offset = 0;
    for (int r = 0; r < rank; ++r) offset += counts[static_cast<size_t>(r)];
    return offset;
  }
  int64_t CountOf(int rank) const { return counts[static_cast<size_t>(rank)]; }
  const Bytes& InputOf(int rank) const {
    return (*inputs)[static_cast<size_t>(rank)];
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

enum class Style { kBlocking, kAsynchronous, kSomeOfEach };

// One rank's part in a case. All collectives of a case are posted, then waited
// for in reverse; blocking ones wait as they are posted.
class CaseRun {
 public:
  CaseRun(Communicator& comm, const Case& c)
      : comm_(comm),
        case_(c),
        rank_(comm.rank()),
        reduced_(c.dtype, c.InputOf(rank_), OddBytes()),
        scattered_from_(c.dtype, c.InputOf(rank_), OddBytes()),
        scattered_(c.dtype, c.CountOf(rank_), OddBytes()),
        scattered_in_place_(c.dtype, c.InputOf(rank_), OddBytes()),
        gathered_from_(c.dtype, c.PartOf(rank_), OddBytes()),
        gathered_(c.dtype, c.elems, OddBytes()),
        gathered_in_place_(c.dtype, c.elems, OddBytes()),
        broadcast_(c.dtype, c.InputOf(rank_), OddBytes()) {
    const Bytes part = c.PartOf(rank_);
    std::copy(
        part.begin(), part.end(),
        static_cast<std::byte*>(gathered_in_place_.At(c.OffsetOf(rank_))));
  }

  void Run(Style style) {
    const bool is_odd = rank_ % 2 == 1;
    if (style == Style::kBlocking || (style == Style::kSomeOfEach && is_odd)) {
      Blocking();
    } else {
      Asynchronous();
    }
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
    Expect(broadcast_, c.InputOf(c.root), "broadcast");
  }

 private:
  // Another for each buffer and rank.
  int64_t OddBytes() { return 2 * ((num_buffers_++ + rank_) % 8) + 1; }

  void Blocking() {
    comm_.AllReduce(All(reduced_), case_.op, "ar");
    comm_.ReduceScatter(All(scattered_from_), Part(scattered_), case_.counts,
                        case_.op, "rs");
    comm_.ReduceScatter(All(scattered_in_place_), InPlace(scattered_in_place_),
                        case_.counts, case_.op, "rs in place");
    comm_.Barrier("b");
    comm_.AllGather(Part(gathered_from_), All(gathered_), case_.counts, "ag");
    comm_.AllGather(InPlace(gathered_in_place_), All(gathered_in_place_),
                    case_.counts, "ag in place");
    comm_.Broadcast(All(broadcast_), case_.root, "bc");
  }

  void Asynchronous() {
    std::vector<Work> works;
    works.push_back(comm_.StartAllReduce(All(reduced_), case_.op, "ar"));
    works.push_back(comm_.StartReduceScatter(
        All(scattered_from_), Part(scattered_), case_.counts, case_.op, "rs"));
    works.push_back(comm_.StartReduceScatter(
        All(scattered_in_place_), InPlace(scattered_in_place_), case_.counts,
        case_.op, "rs in place"));
    works.push_back(comm_.StartBarrier("b"));
    works.push_back(comm_.StartAllGather(Part(gathered_from_), All(gathered_),
                                         case_.counts, "ag"));
    works.push_back(comm_.StartAllGather(InPlace(gathered_in_place_),
                                         All(gathered_in_place_), case_.counts,
                                         "ag in place"));
    works.push_back(comm_.StartBroadcast(All(broadcast_), case_.root, "bc"));
    for (size_t i = works.size(); i > 0; --i) works[i - 1].Wait();
  }

  Buffer All(PoisonedBuffer& b) { return {b.data(), case_.dtype, case_.elems}; }
  Buffer Part(PoisonedBuffer& b) {
    return {b.data(), case_.dtype, case_.CountOf(rank_)};
  }
  Buffer InPlace(PoisonedBuffer& b) {
    return {b.At(case_.OffsetOf(rank_)), case_.dtype, case_.CountOf(rank_)};
  }
  void Expect(const PoisonedBuffer& b, const Bytes& expected,
              const char* what) {
    EXPECT_TRUE(b.Holds(expected)) << what << Facts();
    EXPECT_TRUE(b.IsPoisonIntact()) << "memory around " << what << Facts();
  }
  std::string Facts() const {
    std::string text = " of " + std::string(Name(case_.op)) + " " +
                       std::string(Name(case_.dtype)) + " x";
    for (int64_t count : case_.counts) text += " " + std::to_string(count);
    return text + ", root " + std::to_string(case_.root) + ", rank " +
           std::to_string(rank_);
  }

  Communicator& comm_;
  const Case& case_;
  const int rank_;
  int num_buffers_ = 0;
  PoisonedBuffer reduced_;
  PoisonedBuffer scattered_from_, scattered_, scattered_in_place_;
  PoisonedBuffer gathered_from_, gathered_, gathered_in_place_;
  PoisonedBuffer broadcast_;
};

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage,
                             ReduceOp::kProduct, ReduceOp::kMin,
                             ReduceOp::kMax};

class ExactnessTest : public testing::TestWithParam<std::tuple<int, DType>> {};

// All reductions of `elems`, each split in all three ways, or in one.
void AddCases(DType dtype, int ranks, int64_t elems, bool in_all_ways,
              std::vector<Case>& cases) {
  std::vector<Bytes> values;
  for (int r = 0; r < ranks; ++r) {
    values.push_back(RandomValues(dtype, elems, 1000 * r + elems));
  }
  const auto inputs = std::make_shared<const std::vector<Bytes>>(values);
  for (ReduceOp op : kOps) {
    if (op == ReduceOp::kAverage && IsInteger(dtype)) continue;
    const Bytes folded = SerialFold(dtype, op, values);
    const auto number = static_cast<int>(cases.size());
    for (int i = 0; i < (in_all_ways ? 3 : 1); ++i) {
      cases.push_back({dtype, op, Split(elems, ranks, (number + i) % 3), elems,
                       (number + i) % ranks, inputs, folded});
    }
  }
}

std::vector<Case> Cases(DType dtype, int ranks) {
  std::vector<Case> cases;
  const std::set<int64_t> sizes = {0, 1, ranks - 1, ranks, ranks + 1, 1001};
  for (int64_t elems : sizes) {
    AddCases(dtype, ranks, elems, ranks > 1 && elems > 0, cases);
  }
  // Several chunks of the smallest size or a larger one, and one element.
  for (int64_t bytes : {24 << 10, 256 << 10}) {
    AddCases(dtype, ranks, bytes / SizeOf(dtype) + 1, false, cases);
  }
  return cases;
}

TEST_P(ExactnessTest, EveryOperationGivesTheBitsOfASerialFold) {
  const auto [ranks, dtype] = GetParam();
  const std::vector<Case> cases = Cases(dtype, ranks);
  RunRanksHere({.ranks = ranks}, [&cases](Communicator& comm) {
    for (const Case& c : cases) {
      for (Style style :
           {Style::kBlocking, Style::kAsynchronous, Style::kSomeOfEach}) {
        CaseRun run(comm, c);
        run.Run(style);
        run.Check();
      }
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

TEST(IntegerAverageTest, IsRefusedByEveryCallAndChangesNothing) {
  for (int ranks : {1, 2, 3, 8}) {
    RunRanksHere({.ranks = ranks}, [](Communicator& comm) {
      constexpr ReduceOp kAverage = ReduceOp::kAverage;
      const std::vector<int64_t> counts(static_cast<size_t>(comm.ranks()), 3);
      const int64_t elems = 3 * comm.ranks();
      for (DType dtype : {DType::kI64, DType::kI32, DType::kU8}) {
        const Bytes before = RandomValues(dtype, elems, 1);
        PoisonedBuffer data(dtype, before, 1);
        const Buffer all{data.data(), dtype, elems};
        const Buffer mine{data.At(3 * comm.rank()), dtype, 3};
        EXPECT_THROW(comm.AllReduce(all, kAverage, "x"), InvalidArgument);
        EXPECT_THROW(comm.StartAllReduce(all, kAverage, "x"), InvalidArgument);
        EXPECT_THROW(comm.ReduceScatter(all, mine, counts, kAverage, "x"),
                     InvalidArgument);
        EXPECT_THROW(comm.StartReduceScatter(all, mine, counts, kAverage, "x"),
                     InvalidArgument);
        EXPECT_TRUE(data.Holds(before) && data.IsPoisonIntact());
      }
      EXPECT_TRUE(comm.recorder().Records().empty());
      comm.Barrier("the group goes on");
    });
  }
}

}  // namespace
}  // namespace collectives
