#include "trainsys/optim/update.h"

#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

// In [-1, 1).
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

// The whole state of an optimizer over flat memory. What the optimizer does not
// need is there too, and must not be written.
template <typename T>
struct State {
  explicit State(size_t n) : param(Numbers<T>(n, 1)), m(n), v(n) {}

  Elements<T> Part(const std::vector<T>& grad, size_t begin, size_t end) {
    const size_t n = end - begin;
    return {std::span(param).subspan(begin, n),
            std::span(grad).subspan(begin, n),
            {std::span(m).subspan(begin, n), std::span(v).subspan(begin, n)}};
  }
  void Step(const OptimizerOptions& options, int64_t step,
            const std::vector<T>& grad, double scale = 1) {
    UpdateElements<T>(options, step, scale, Part(grad, 0, param.size()));
  }

  bool operator==(const State& other) const {
    return SameBits<T>(param, other.param) && SameBits<T>(m, other.m) &&
           SameBits<T>(v, other.v);
  }

  std::vector<T> param;
  std::vector<T> m;
  std::vector<T> v;
};

constexpr AdamWOptions kAdamW{1e-2, 0.9, 0.95, 1e-8, 0.1};
constexpr AdamOptions kAdam{1e-2, 0.9, 0.95, 1e-8, 0.1};
constexpr SGDOptions kNesterov{
    .lr = 1e-3, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1};
constexpr SGDOptions kSGDW{.lr = 1e-3,
                           .momentum = 0.9,
                           .dampening = 0.25,
                           .weight_decay = 0.1,
                           .decay = Decay::kDecoupled};

// All loops that there are.
std::vector<OptimizerOptions> Kinds() {
  std::vector<OptimizerOptions> kinds{kAdamW, AdamWOptions{.weight_decay = 0},
                                      kAdam, AdamOptions{}};
  for (const double decay : {0.0, 0.1}) {
    for (const Decay where : {Decay::kInGradient, Decay::kDecoupled}) {
      kinds.push_back(SGDOptions{.weight_decay = decay, .decay = where});
      for (const bool nesterov : {false, true}) {
        kinds.push_back(SGDOptions{.momentum = 0.9,
                                   .dampening = nesterov ? 0 : 0.25,
                                   .nesterov = nesterov,
                                   .weight_decay = decay,
                                   .decay = where});
      }
    }
  }
  return kinds;
}

std::string NameOfKind(const OptimizerOptions& options) {
  const auto* sgd = std::get_if<SGDOptions>(&options);
  if (sgd == nullptr) return NameOf(options);
  return "SGD, momentum " + std::to_string(sgd->momentum) + ", nesterov " +
         std::to_string(sgd->nesterov) + ", decay " +
         std::to_string(sgd->weight_decay) +
         (sgd->decay == Decay::kDecoupled ? " decoupled" : "");
}

std::unique_ptr<torch::optim::Optimizer> Torch(const AdamWOptions& o,
                                               const at::Tensor& p) {
  return std::make_unique<torch::optim::AdamW>(
      std::vector{p}, torch::optim::AdamWOptions(o.lr)
                          .betas({o.beta1, o.beta2})
                          .eps(o.eps)
                          .weight_decay(o.weight_decay));
}

std::unique_ptr<torch::optim::Optimizer> Torch(const AdamOptions& o,
                                               const at::Tensor& p) {
  return std::make_unique<torch::optim::Adam>(
      std::vector{p}, torch::optim::AdamOptions(o.lr)
                          .betas({o.beta1, o.beta2})
                          .eps(o.eps)
                          .weight_decay(o.weight_decay));
}

std::unique_ptr<torch::optim::Optimizer> Torch(const SGDOptions& o,
                                               const at::Tensor& p) {
  return std::make_unique<torch::optim::SGD>(std::vector{p},
                                             torch::optim::SGDOptions(o.lr)
                                                 .momentum(o.momentum)
                                                 .dampening(o.dampening)
                                                 .nesterov(o.nesterov)
                                                 .weight_decay(o.weight_decay));
}

template <typename T>
at::Tensor TensorOn(const std::vector<T>& x) {
  return at::from_blob(const_cast<T*>(x.data()),
                       {static_cast<int64_t>(x.size())},
                       c10::CppTypeToScalarType<T>::value);
}

// How many numbers of the type lie between two of the same sign.
int64_t Ulps(float a, float b) {
  return std::abs(int64_t{std::bit_cast<int32_t>(a)} -
                  std::bit_cast<int32_t>(b));
}
int64_t Ulps(double a, double b) {
  return std::abs(std::bit_cast<int64_t>(a) - std::bit_cast<int64_t>(b));
}

// The most that a parameter differs by from torch::optim's over 20 steps. They
// start at 0.5 to 1 or the negative of that, and stay away from 0.
template <typename T>
int64_t WorstUlps(const OptimizerOptions& options) {
  constexpr size_t kSize = 10'007;
  State<T> ours(kSize);
  for (T& p : ours.param) p = (p < 0 ? -T{0.75} : T{0.75}) + p / 4;
  std::vector<T> theirs = ours.param;
  const at::Tensor tensor = TensorOn(theirs).set_requires_grad(true);
  const auto optimizer = std::visit(
      [&tensor](const auto& o) { return Torch(o, tensor); }, options);
  int64_t worst = 0;
  for (int step = 1; step <= 20; ++step) {
    const std::vector<T> grad = Numbers<T>(kSize, 100 + step);
    ours.Step(options, step, grad);
    tensor.mutable_grad() = TensorOn(grad);
    optimizer->step();
    for (size_t i = 0; i < kSize; ++i) {
      EXPECT_GT(std::abs(ours.param[i]), 0.125);
      worst = std::max(worst, Ulps(ours.param[i], theirs[i]));
    }
  }
  return worst;
}

bool IsInTorch(const OptimizerOptions& options) {
  const auto* sgd = std::get_if<SGDOptions>(&options);
  return sgd == nullptr || sgd->decay == Decay::kInGradient;
}

template <typename T>
class UpdateTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(UpdateTest, Types);

TYPED_TEST(UpdateTest, EqualsTorchWithinTheUlpsThatTheHeaderSays) {
  for (const OptimizerOptions& options : Kinds()) {
    if (!IsInTorch(options)) continue;
    const int64_t ulps = WorstUlps<TypeParam>(options);
    EXPECT_LE(ulps, kMaxUlpsToTorch) << NameOfKind(options);
  }
}

// One element after the other, one operation after the other.
template <typename T>
void StepPlainly(const AdamWOptions& o, int step, const std::vector<T>& grad,
                 State<T>& s) {
  const T beta1(o.beta1), rest1(1 - o.beta1);
  const T beta2(o.beta2), rest2(1 - o.beta2);
  const T keep(1 - o.lr * o.weight_decay), eps(o.eps);
  const T root(std::sqrt(1 - std::pow(o.beta2, step)));
  const T size(o.lr / (1 - std::pow(o.beta1, step)));
  for (size_t i = 0; i < grad.size(); ++i) {
    s.m[i] = beta1 * s.m[i] + rest1 * grad[i];
    s.v[i] = beta2 * s.v[i] + rest2 * grad[i] * grad[i];
    s.param[i] =
        keep * s.param[i] - size * s.m[i] / (std::sqrt(s.v[i]) / root + eps);
  }
}

// Shards of older runs must go on with the same bits.
TYPED_TEST(UpdateTest, AdamWHasTheBitsOfItsFormula) {
  using T = TypeParam;
  constexpr size_t kSize = 1003;
  State<T> ours(kSize);
  State<T> plain(kSize);
  for (int step = 1; step <= 20; ++step) {
    const std::vector<T> grad = Numbers<T>(kSize, 100 + step);
    ours.Step(kAdamW, step, grad);
    StepPlainly(kAdamW, step, grad, plain);
    ASSERT_EQ(ours, plain) << "step " << step;
  }
}

TYPED_TEST(UpdateTest, DecoupledDecayOfSGDHasTheBitsOfItsFormula) {
  using T = TypeParam;
  constexpr size_t kSize = 103;
  State<T> ours(kSize);
  std::vector<T> p = ours.param;
  std::vector<T> m(kSize);
  const T lr(kSGDW.lr);
  for (int step = 1; step <= 20; ++step) {
    const std::vector<T> grad = Numbers<T>(kSize, 100 + step);
    ours.Step(kSGDW, step, grad);
    for (size_t i = 0; i < kSize; ++i) {
      m[i] = step == 1 ? grad[i] : T(0.9) * m[i] + T(0.75) * grad[i];
      p[i] = T(1 - 1e-3 * 0.1) * p[i] - lr * m[i];
    }
    ASSERT_TRUE(SameBits<T>(ours.param, p)) << "step " << step;
    ASSERT_TRUE(SameBits<T>(ours.m, m)) << "step " << step;
  }
}

TYPED_TEST(UpdateTest, DecayOfNoneIsTheSameInTheGradientAndDecoupled) {
  using T = TypeParam;
  State<T> one(67);
  State<T> other(67);
  for (int step = 1; step <= 3; ++step) {
    const std::vector<T> grad = Numbers<T>(67, step);
    one.Step(SGDOptions{.momentum = 0.9}, step, grad);
    other.Step(SGDOptions{.momentum = 0.9, .decay = Decay::kDecoupled}, step,
               grad);
  }
  EXPECT_EQ(one, other);
}

// Up to twice the elements of a vector that any machine has, cut everywhere.
TYPED_TEST(UpdateTest, SameBitsWhereverTheRangeIsCut) {
  using T = TypeParam;
  for (const OptimizerOptions& options : Kinds()) {
    for (size_t n = 1; n <= 33; ++n) {
      State<T> whole(n);
      std::vector<State<T>> cut(n, State<T>(n));
      for (int step = 1; step <= 3; ++step) {
        const std::vector<T> grad = Numbers<T>(n, step);
        whole.Step(options, step, grad);
        for (size_t at = 0; at < n; ++at) {
          UpdateElements<T>(options, step, 1, cut[at].Part(grad, 0, at));
          UpdateElements<T>(options, step, 1, cut[at].Part(grad, at, n));
        }
      }
      for (size_t at = 0; at < n; ++at) {
        ASSERT_EQ(cut[at], whole)
            << NameOfKind(options) << ", n " << n << " cut at " << at;
      }
    }
  }
}

// One element at a time takes the scalar path only.
TYPED_TEST(UpdateTest, SameBitsElementByElement) {
  using T = TypeParam;
  constexpr size_t kSize = 517;
  for (const OptimizerOptions& options : Kinds()) {
    State<T> whole(kSize);
    State<T> single(kSize);
    for (int step = 1; step <= 3; ++step) {
      const std::vector<T> grad = Numbers<T>(kSize, step);
      whole.Step(options, step, grad);
      for (size_t i = 0; i < kSize; ++i) {
        UpdateElements<T>(options, step, 1, single.Part(grad, i, i + 1));
      }
    }
    EXPECT_EQ(single, whole) << NameOfKind(options);
  }
}

// Each of the four arrays begins elsewhere within 64 bytes.
TYPED_TEST(UpdateTest, SameBitsHoweverTheArraysAreAligned) {
  using T = TypeParam;
  constexpr size_t kSize = 41;
  constexpr size_t kPlaces = 64 / sizeof(T);
  const std::vector<T> grad = Numbers<T>(kSize, 7);
  for (const OptimizerOptions& options : Kinds()) {
    State<T> whole(kSize);
    whole.Step(options, 2, grad);
    for (size_t place = 0; place < kPlaces; ++place) {
      const auto moved = [place](const std::vector<T>& x, size_t stride) {
        std::vector<T> y(place * stride % kPlaces);
        y.insert(y.end(), x.begin(), x.end());
        return y;
      };
      const State<T> start(kSize);
      std::vector<T> p = moved(start.param, 1);
      const std::vector<T> g = moved(grad, 3);
      std::vector<T> m = moved(start.m, 5);
      std::vector<T> v = moved(start.v, 7);
      UpdateElements<T>(options, 2, 1,
                        {std::span(p).last(kSize),
                         std::span(g).last(kSize),
                         {std::span(m).last(kSize), std::span(v).last(kSize)}});
      EXPECT_TRUE(SameBits<T>(std::span(p).last(kSize), whole.param));
      EXPECT_TRUE(SameBits<T>(std::span(m).last(kSize), whole.m));
      EXPECT_TRUE(SameBits<T>(std::span(v).last(kSize), whole.v));
    }
  }
}

TYPED_TEST(UpdateTest, GradientScaleEqualsScalingTheGradientsBefore) {
  using T = TypeParam;
  constexpr size_t kSize = 67;
  constexpr double kScale = 1.0 / 3;
  for (const OptimizerOptions& options : Kinds()) {
    State<T> scaled(kSize);
    State<T> before(kSize);
    for (int step = 1; step <= 3; ++step) {
      std::vector<T> grad = Numbers<T>(kSize, step);
      scaled.Step(options, step, grad, kScale);
      for (T& g : grad) g = static_cast<T>(kScale) * g;
      before.Step(options, step, grad);
    }
    EXPECT_EQ(scaled, before) << NameOfKind(options);
  }
}

TYPED_TEST(UpdateTest, MomentsThatAreNotNeededMayBeEmptyAndStay) {
  using T = TypeParam;
  const std::vector<T> grad{1, -2, 3};
  for (const OptimizerOptions& options : Kinds()) {
    const auto num = static_cast<size_t>(NumMoments(options));
    State<T> with(3);
    State<T> without(3);
    Elements<T> less = without.Part(grad, 0, 3);
    for (size_t i = num; i < 2; ++i) less.moments[i] = {};
    for (int step = 1; step <= 2; ++step) {
      with.Step(options, step, grad);
      UpdateElements<T>(options, step, 1, less);
    }
    EXPECT_EQ(with, without) << NameOfKind(options);
    EXPECT_EQ(with.m != std::vector<T>(3), num >= 1) << NameOfKind(options);
    EXPECT_EQ(with.v != std::vector<T>(3), num == 2) << NameOfKind(options);
  }
}

TYPED_TEST(UpdateTest, ZeroElementsAreFine) {
  for (const OptimizerOptions& options : Kinds()) {
    UpdateElements<TypeParam>(options, 1, 1, {});
  }
}

TYPED_TEST(UpdateTest, NotFiniteGradientsShowAndStayWhereTheyAre) {
  using T = TypeParam;
  constexpr size_t kSize = 40;
  for (const OptimizerOptions& options : Kinds()) {
    for (const T bad : {std::numeric_limits<T>::quiet_NaN(),
                        std::numeric_limits<T>::infinity()}) {
      State<T> state(kSize);
      std::vector<T> grad = Numbers<T>(kSize, 3);
      grad[17] = bad;
      state.Step(options, 1, grad);
      for (size_t i = 0; i < kSize; ++i) {
        EXPECT_EQ(std::isfinite(state.param[i]), i != 17) << i;
      }
    }
  }
}

TEST(UpdateOfOneStepTest, AdamWMovesByLrAgainstTheSignOfTheGradient) {
  State<double> state(2);
  state.param = {1, 1};
  state.Step(AdamWOptions{0.5, 0.9, 0.999, 0, 0}, 1, {3, -0.25});
  EXPECT_NEAR(state.param[0], 0.5, 1e-12);
  EXPECT_NEAR(state.param[1], 1.5, 1e-12);
}

TEST(UpdateOfOneStepTest, DecoupledDecayLeavesTheMomentsAlone) {
  for (const OptimizerOptions& options : std::vector<OptimizerOptions>{
           AdamWOptions{.lr = 0.5, .weight_decay = 0.25},
           SGDOptions{.lr = 0.5,
           .momentum = 0.5,
           .weight_decay = 0.25,
           .decay = Decay::kDecoupled}}) {
    State<double> state(1);
    state.param = {4};
    state.Step(options, 1, {0});
    EXPECT_EQ(state.param[0], 4 * (1 - 0.125));
    EXPECT_EQ(state.m[0], 0);
    EXPECT_EQ(state.v[0], 0);
  }
}

TEST(UpdateOfOneStepTest, DecayInTheGradientEntersTheMoments) {
  State<double> adam(1);
  adam.param = {4};
  adam.Step(AdamOptions{.beta1 = 0.5, .beta2 = 0.5, .weight_decay = 0.25}, 1,
            {2});
  EXPECT_EQ(adam.m[0], 0.5 * (2 + 1));
  EXPECT_EQ(adam.v[0], 0.5 * 9);
  State<double> sgd(1);
  sgd.param = {4};
  sgd.Step(SGDOptions{.lr = 0.5, .momentum = 0.5, .weight_decay = 0.25}, 1,
           {2});
  EXPECT_EQ(sgd.m[0], 3);
  EXPECT_EQ(sgd.param[0], 4 - 0.5 * 3);
}

// p = 8, g = 4, then 2: m = 4, then 0.5 * 4 + (1 - dampening) * 2.
TEST(UpdateOfOneStepTest, MomentumBeginsAsTheGradientAndIsDampedAfterwards) {
  const SGDOptions damped{.lr = 0.25, .momentum = 0.5, .dampening = 0.5};
  State<double> state(1);
  state.param = {8};
  state.m = {std::numeric_limits<double>::quiet_NaN()};  // not read at step 1
  state.Step(damped, 1, {4});
  EXPECT_EQ(state.m[0], 4);
  EXPECT_EQ(state.param[0], 7);
  state.Step(damped, 2, {2});
  EXPECT_EQ(state.m[0], 3);
  EXPECT_EQ(state.param[0], 6.25);
}

TEST(UpdateOfOneStepTest, NesterovLooksAhead) {
  State<double> state(1);
  state.param = {8};
  state.Step(SGDOptions{.lr = 0.25, .momentum = 0.5, .nesterov = true}, 1, {4});
  EXPECT_EQ(state.m[0], 4);
  EXPECT_EQ(state.param[0], 8 - 0.25 * (4 + 0.5 * 4));
}

TEST(UpdateErrorsTest, LengthsStepAndOptionsAreCheckedBeforeAnythingIsWritten) {
  using collectives::InvalidArgument;
  const std::vector<float> three(3);
  for (const OptimizerOptions& options : Kinds()) {
    State<float> state(2);
    const State<float> before(2);
    const std::vector<float> grad{1, 2};
    const Elements<float> good = state.Part(grad, 0, 2);
    const auto refused = [&](int64_t step, const Elements<float>& elements) {
      EXPECT_THROW(UpdateElements<float>(options, step, 1, elements),
                   InvalidArgument)
          << NameOfKind(options);
    };
    refused(0, good);
    Elements<float> bad = good;
    bad.grad = three;
    refused(1, bad);
    for (size_t i = 0; i < static_cast<size_t>(NumMoments(options)); ++i) {
      bad = good;
      bad.moments[i] = bad.moments[i].first(1);
      refused(1, bad);
    }
    OptimizerOptions negative = options;
    SetLr(negative, -1);
    EXPECT_THROW(UpdateElements<float>(negative, 1, 1, good), InvalidArgument);
    EXPECT_EQ(state, before);
  }
}

}  // namespace
}  // namespace trainsys
