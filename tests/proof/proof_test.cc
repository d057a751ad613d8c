#include "trainsys/proof/proof.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/shm/run_ranks.h"
#include "tests/train/ranks_apart.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

ByteDataset ShortText() {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the cat sat on the mat; ";
  return ByteDataset::FromBytes(text, /*context=*/16);
}

JobOptions SmallJob(int ranks) {
  JobOptions options;
  options.ranks = ranks;
  options.steps = 3;
  options.snapshot_steps = 2;
  options.batch = 2;
  return options;
}

TEST(ProveTest, AJobIsProvenOnItsFirstSteps) {
  collectives::ThreadRunner threads;
  for (int ranks : {1, 3}) {
    const JobOptions options = SmallJob(ranks);
    const JobResult result = RunJob(threads, options, ShortText());
    const Proof proof = *Prove(threads, options, ShortText(), result.snapshot);
    EXPECT_EQ(proof.steps, 2);
    EXPECT_TRUE(proof.has_equal_bits);
    EXPECT_LE(proof.f64_difference, kF64Tolerance);
    EXPECT_LE(proof.f32_difference, 2 * 2 * options.lr);
    EXPECT_TRUE(proof.HasPassed());
  }
}

TEST(ProveTest, RanksApartAreProvenWhereTheFirstRuns) {
  const JobOptions options = SmallJob(3);
  const auto proofs =
      RanksApart(3).RunPrograms<std::optional<Proof>>([&](auto& runner) {
        const JobResult result = RunJob(runner, options, ShortText());
        return Prove(runner, options, ShortText(), result.snapshot);
      });
  ASSERT_TRUE(proofs[0]);
  EXPECT_TRUE(proofs[0]->HasPassed());
  EXPECT_FALSE(proofs[1]);
  EXPECT_FALSE(proofs[2]);
}

TEST(ProveTest, ItTellsHowFarItIs) {
  collectives::ThreadRunner threads;
  const JobOptions options = SmallJob(2);
  const JobResult result = RunJob(threads, options, ShortText());
  std::vector<int64_t> seen;
  Prove(threads, options, ShortText(), result.snapshot,
        [&](int64_t done, int64_t all) {
          seen.push_back(done);
          EXPECT_EQ(all, 4 * 2 * 2);
        });
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), 4 * 2 * 2);
}

// At each of its parts: whichever thread meets it first, the proof ends.
TEST(ProveTest, ASignalEndsTheProofOnAllRanks) {
  for (const int64_t when : {1, 4, 8, 12}) {
    const InterruptScope scope;
    const JobOptions options = SmallJob(2);
    const auto signals = RanksApart(2).RunPrograms<int>([&](auto& runner) {
      try {
        Prove(runner, options, ShortText(), {}, [when](int64_t done, int64_t) {
          if (done >= when && InterruptSignal() == 0) raise(SIGINT);
        });
      } catch (const Interrupted& interrupted) {
        return interrupted.signal();
      }
      return 0;
    });
    EXPECT_EQ(signals[0], SIGINT) << when;
  }
}

TEST(ProveTest, OneBitThatDiffersFailsTheProof) {
  collectives::ThreadRunner threads;
  const JobOptions options = SmallJob(2);
  JobResult result = RunJob(threads, options, ShortText());
  static_cast<uint8_t*>(result.snapshot.back().data_ptr())[0] ^= 1;
  const Proof proof = *Prove(threads, options, ShortText(), result.snapshot);
  EXPECT_FALSE(proof.has_equal_bits);
  EXPECT_FALSE(proof.HasPassed());
}

TEST(ProveTest, TheSnapshotOfAnotherStepFailsTheProof) {
  collectives::ThreadRunner threads;
  JobOptions options = SmallJob(2);
  const JobResult result = RunJob(threads, options, ShortText());
  options.snapshot_steps = 1;
  const Proof proof = *Prove(threads, options, ShortText(), result.snapshot);
  EXPECT_FALSE(proof.HasPassed());
  EXPECT_GT(proof.f32_difference, 1e-4);
}

TEST(ProofTest, PassesOnlyWithEqualBitsAndWithinTheTolerance) {
  EXPECT_TRUE((Proof{1, true, 1, kF64Tolerance}.HasPassed()));
  EXPECT_FALSE((Proof{1, false, 0, 0}.HasPassed()));
  EXPECT_FALSE((Proof{1, true, 0, 2 * kF64Tolerance}.HasPassed()));
}

TEST(ProofMemoryBytesTest, OnlyFullRecomputationHalvesWhatARowTakes) {
  JobOptions options;
  const int64_t full = ProofMemoryBytes(options);
  options.activation_budget_bytes = 1 << 30;
  EXPECT_GT(ProofMemoryBytes(options), full);
  options.activation_budget_bytes = 0;
  for (const char* policy : {"none", "selective", "every-2"}) {
    options.recompute = policy;
    EXPECT_GT(ProofMemoryBytes(options), full) << policy;
  }
}

}  // namespace
}  // namespace trainsys
