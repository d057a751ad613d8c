#include "trainsys/platform/blas.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace trainsys {
namespace {

constexpr CpuFeatures kSse{};
constexpr CpuFeatures kAvx2{.has_avx2_fma = true};
constexpr CpuFeatures kAvx512{.has_avx2_fma = true, .has_avx512 = true};

TEST(BetterCoreTypeTest, OldKernelsGiveWayToWhatTheProcessorCan) {
  for (const char* core : {"Prescott", "Core2", "Nehalem", "Sandybridge"}) {
    EXPECT_EQ(BetterCoreType(core, kAvx512), "SkylakeX") << core;
    EXPECT_EQ(BetterCoreType(core, kAvx2), "Haswell") << core;
    EXPECT_EQ(BetterCoreType(core, kSse), "") << core;
  }
}

TEST(BetterCoreTypeTest, GoodAndUnknownKernelsStay) {
  for (const char* core :
       {"Haswell", "Zen", "SkylakeX", "NotYetInvented", ""}) {
    EXPECT_EQ(BetterCoreType(core, kAvx512), "") << core;
    EXPECT_EQ(BetterCoreType(core, kAvx2), "") << core;
  }
}

TEST(BlasTest, DescribeNamesLibraryKernelAndSlowness) {
  EXPECT_EQ(Describe({"OpenBLAS 0.3.21", "Zen", false}),
            "OpenBLAS 0.3.21, kernel Zen");
  EXPECT_EQ(Describe({"OpenBLAS 0.3.21", "Prescott", true}),
            "OpenBLAS 0.3.21, kernel Prescott (slow on this processor)");
  EXPECT_EQ(Describe({"unknown BLAS", "", false}), "unknown BLAS");
}

TEST(BlasTest, DetectedLibraryHasAName) {
  const BlasKernel kernel = DetectBlas();
  EXPECT_FALSE(kernel.library.empty());
  EXPECT_EQ(kernel.core.empty(), kernel.library == "unknown BLAS");
}

TEST(BlasTest, UseOneBlasThreadHoldsForLibtorchToo) {
  at::set_num_threads(2);
  UseOneBlasThread();
  EXPECT_EQ(at::get_num_threads(), 1);
}

}  // namespace
}  // namespace trainsys
