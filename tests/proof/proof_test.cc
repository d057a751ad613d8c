#include "trainsys/proof/proof.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

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
  for (int ranks : {1, 3}) {
    const JobOptions options = SmallJob(ranks);
    const JobResult result = RunJob(options, ShortText());
    const Proof proof = Prove(options, ShortText(), result.snapshot);
    EXPECT_EQ(proof.steps, 2);
    EXPECT_TRUE(proof.has_equal_bits);
    EXPECT_LE(proof.f64_difference, kF64Tolerance);
    EXPECT_LE(proof.f32_difference, 2 * 2 * options.lr);
    EXPECT_TRUE(proof.HasPassed());
  }
}

TEST(ProveTest, OneBitThatDiffersFailsTheProof) {
  const JobOptions options = SmallJob(2);
  JobResult result = RunJob(options, ShortText());
  static_cast<uint8_t*>(result.snapshot.back().data_ptr())[0] ^= 1;
  const Proof proof = Prove(options, ShortText(), result.snapshot);
  EXPECT_FALSE(proof.has_equal_bits);
  EXPECT_FALSE(proof.HasPassed());
}

TEST(ProveTest, TheSnapshotOfAnotherStepFailsTheProof) {
  JobOptions options = SmallJob(2);
  const JobResult result = RunJob(options, ShortText());
  options.snapshot_steps = 1;
  const Proof proof = Prove(options, ShortText(), result.snapshot);
  EXPECT_FALSE(proof.HasPassed());
  EXPECT_GT(proof.f32_difference, 1e-4);
}

TEST(ProofTest, PassesOnlyWithEqualBitsAndWithinTheTolerance) {
  EXPECT_TRUE((Proof{1, true, 1, kF64Tolerance}.HasPassed()));
  EXPECT_FALSE((Proof{1, false, 0, 0}.HasPassed()));
  EXPECT_FALSE((Proof{1, true, 0, 2 * kF64Tolerance}.HasPassed()));
}

}  // namespace
}  // namespace trainsys
