#include "trainsys/optim/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

template <typename T>
std::vector<T> Numbers(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<T> numbers(n);
  for (T& x : numbers) {
    x = static_cast<T>(static_cast<int32_t>(random())) / T{1u << 31};
  }
  return numbers;
}

template <typename T>
bool SameBits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// The whole state of an optimizer over flat memory.
template <typename T>
struct State {
  explicit State(size_t n) : param(Numbers<T>(n, 1)), m(n), v(n) {}

  // Updates elements [begin, end).
  void Step(const AdamWOptions& options, int64_t step,
            const std::vector<T>& grad, size_t begin, size_t end) {
    const size_t n = end - begin;
    AdamWStep<T>(options, step, std::span(param).subspan(begin, n),
                 std::span(grad).subspan(begin, n),
                 std::span(m).subspan(begin, n),
                 std::span(v).subspan(begin, n));
  }

  bool operator==(const State& other) const {
    return SameBits<T>(param, other.param) && SameBits<T>(m, other.m) &&
           SameBits<T>(v, other.v);
  }

  std::vector<T> param;
  std::vector<T> m;
  std::vector<T> v;
};

template <typename T>
at::Tensor ToTensor(const std::vector<T>& x) {
  return at::tensor(x, c10::CppTypeToScalarType<T>::value);
}

// The largest difference to torch::optim::AdamW over 20 steps, relative to
// parameters of size 1.
template <typename T>
double WorstDifference(const AdamWOptions& options) {
  constexpr size_t kSize = 1003;
  State<T> ours(kSize);
  const at::Tensor theirs = ToTensor(ours.param).set_requires_grad(true);
  torch::optim::AdamW optimizer({theirs},
                                torch::optim::AdamWOptions(options.lr)
                                    .betas({options.beta1, options.beta2})
                                    .eps(options.eps)
                                    .weight_decay(options.weight_decay));
  double worst = 0;
  for (int step = 1; step <= 20; ++step) {
    const std::vector<T> grad = Numbers<T>(kSize, 100 + step);
    ours.Step(options, step, grad, 0, kSize);
    theirs.mutable_grad() = ToTensor(grad);
    optimizer.step();
    const at::Tensor difference = ToTensor(ours.param) - theirs.detach();
    worst = std::max(worst, difference.abs().max().template item<double>());
  }
  return worst;
}

constexpr AdamWOptions kPlain{1e-2, 0.9, 0.95, 1e-8, 0};
constexpr AdamWOptions kDecay{1e-2, 0.9, 0.95, 1e-8, 0.1};

TEST(AdamWTest, EqualsTorchInF32) {
  EXPECT_LE(WorstDifference<float>(kPlain), 1e-6);
  EXPECT_LE(WorstDifference<float>(kDecay), 1e-6);
}

TEST(AdamWTest, EqualsTorchInF64) {
  EXPECT_LE(WorstDifference<double>(kPlain), 1e-14);
  EXPECT_LE(WorstDifference<double>(kDecay), 1e-14);
}

TEST(AdamWTest, TheFirstStepMovesByLrAgainstTheSignOfTheGradient) {
  State<double> state(2);
  state.param = {1, 1};
  state.Step({0.5, 0.9, 0.999, 0, 0}, 1, {3, -0.25}, 0, 2);
  EXPECT_NEAR(state.param[0], 0.5, 1e-12);
  EXPECT_NEAR(state.param[1], 1.5, 1e-12);
}

TEST(AdamWTest, DecayActsOnTheParameterAloneAndNotOnTheMoments) {
  State<double> state(1);
  state.param = {4};
  state.Step({0.5, 0.9, 0.999, 1e-8, 0.25}, 1, {0}, 0, 1);
  EXPECT_EQ(state.param[0], 4 * (1 - 0.125));
  EXPECT_EQ(state.m[0], 0);
  EXPECT_EQ(state.v[0], 0);
}

template <typename T>
class AdamWBitsTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AdamWBitsTest, Types);

TYPED_TEST(AdamWBitsTest, SameBitsWhereverTheShardBorderFalls) {
  using T = TypeParam;
  for (const size_t n : {9u, 64u, 1003u}) {
    State<T> whole(n);
    for (int step = 1; step <= 5; ++step) {
      whole.Step(kDecay, step, Numbers<T>(n, step), 0, n);
    }
    for (const size_t cut :
         {size_t{0}, size_t{1}, size_t{7}, size_t{8}, n - 1}) {
      State<T> parts(n);
      for (int step = 1; step <= 5; ++step) {
        const std::vector<T> grad = Numbers<T>(n, step);
        parts.Step(kDecay, step, grad, 0, cut);
        parts.Step(kDecay, step, grad, cut, n);
      }
      EXPECT_EQ(parts, whole) << "n " << n << " cut at " << cut;
    }
  }
}

// One element at a time takes the scalar path only.
TYPED_TEST(AdamWBitsTest, SameBitsElementByElement) {
  using T = TypeParam;
  constexpr size_t kSize = 517;
  State<T> whole(kSize);
  State<T> single(kSize);
  for (int step = 1; step <= 5; ++step) {
    const std::vector<T> grad = Numbers<T>(kSize, step);
    whole.Step(kDecay, step, grad, 0, kSize);
    for (size_t i = 0; i < kSize; ++i)
      single.Step(kDecay, step, grad, i, i + 1);
  }
  EXPECT_EQ(single, whole);
}

TYPED_TEST(AdamWBitsTest, ZeroElementsAreFine) {
  AdamWStep<TypeParam>(kDecay, 1, {}, {}, {}, {});
}

TYPED_TEST(AdamWBitsTest, NotFiniteGradientsShowAndStayWhereTheyAre) {
  using T = TypeParam;
  constexpr size_t kSize = 40;
  for (const T bad : {std::numeric_limits<T>::quiet_NaN(),
                      std::numeric_limits<T>::infinity()}) {
    State<T> state(kSize);
    std::vector<T> grad = Numbers<T>(kSize, 3);
    grad[17] = bad;
    state.Step(kDecay, 1, grad, 0, kSize);
    for (size_t i = 0; i < kSize; ++i) {
      EXPECT_EQ(std::isfinite(state.param[i]), i != 17) << i;
      EXPECT_EQ(std::isfinite(state.v[i]), i != 17) << i;
    }
  }
}

TEST(AdamWTest, LengthsAndStepAreChecked) {
  std::vector<float> two(2);
  std::vector<float> three(3);
  using collectives::InvalidArgument;
  const auto step = [](int64_t t, std::vector<float>& param,
                       std::vector<float>& grad, std::vector<float>& m,
                       std::vector<float>& v) {
    AdamWStep<float>(kDecay, t, param, grad, m, v);
  };
  std::vector<float> other = two;
  EXPECT_THROW(step(1, two, three, two, two), InvalidArgument);
  EXPECT_THROW(step(1, two, two, three, two), InvalidArgument);
  EXPECT_THROW(step(1, two, two, two, three), InvalidArgument);
  EXPECT_THROW(step(0, two, two, two, two), InvalidArgument);
  EXPECT_EQ(two, other);
}

TEST(AdamWTest, OptionsOutOfRangeAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_NO_THROW(Validate({}));
  EXPECT_NO_THROW(Validate({0, 0, 0, 0, 0}));
  for (const AdamWOptions& bad :
       std::vector<AdamWOptions>{{.lr = -1},
                                 {.lr = nan},
                                 {.lr = inf},
                                 {.beta1 = 1},
                                 {.beta1 = -0.1},
                                 {.beta1 = nan},
                                 {.beta2 = 1},
                                 {.beta2 = -0.1},
                                 {.eps = -1e-8},
                                 {.eps = nan},
                                 {.weight_decay = -0.1},
                                 {.weight_decay = inf}}) {
    EXPECT_THROW(Validate(bad), collectives::InvalidArgument);
  }
}

}  // namespace
}  // namespace trainsys
