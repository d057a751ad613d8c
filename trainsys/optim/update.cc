#include "trainsys/optim/update.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <type_traits>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

template <typename T>
struct AdamConstants {
  template <typename Options>
  AdamConstants(const Options& o, int64_t step, double gradient_scale)
      : scale(static_cast<T>(gradient_scale)),
        decay(static_cast<T>(o.weight_decay)),
        keep(static_cast<T>(1 - o.lr * o.weight_decay)),
        beta1(static_cast<T>(o.beta1)),
        one_minus_beta1(static_cast<T>(1 - o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        one_minus_beta2(static_cast<T>(1 - o.beta2)),
        sqrt_correction2(static_cast<T>(
            std::sqrt(1 - std::pow(o.beta2, static_cast<double>(step))))),
        eps(static_cast<T>(o.eps)),
        step_size(static_cast<T>(
            o.lr / (1 - std::pow(o.beta1, static_cast<double>(step))))) {}

  const T scale;
  const T decay;
  const T keep;
  const T beta1;
  const T one_minus_beta1;
  const T beta2;
  const T one_minus_beta2;
  const T sqrt_correction2;
  const T eps;
  const T step_size;
};

// Where weight decay acts.
enum class Acts { kNowhere, kOnGradient, kOnParameter };

// Only correctly rounded operations, none fused or reordered: the vector body,
// of whatever width, and the scalar tail that the compiler makes of these loops
// give the same bits.
template <Acts decay>
struct AdamLoop {
  template <typename T>
  [[gnu::always_inline]] static void Run(const AdamConstants<T> c, size_t n,
                                         T* __restrict param,
                                         const T* __restrict grad,
                                         T* __restrict m, T* __restrict v) {
    for (size_t i = 0; i < n; ++i) {
      const T p = param[i];
      T g = c.scale * grad[i];
      if constexpr (decay == Acts::kOnGradient) g = g + c.decay * p;
      const T m_new = c.beta1 * m[i] + c.one_minus_beta1 * g;
      const T v_new = c.beta2 * v[i] + c.one_minus_beta2 * g * g;
      const T denominator = std::sqrt(v_new) / c.sqrt_correction2 + c.eps;
      const T kept = decay == Acts::kOnParameter ? c.keep * p : p;
      param[i] = kept - c.step_size * m_new / denominator;
      m[i] = m_new;
      v[i] = v_new;
    }
  }
};

template <typename T>
struct SGDConstants {
  SGDConstants(const SGDOptions& o, double gradient_scale)
      : scale(static_cast<T>(gradient_scale)),
        decay(static_cast<T>(o.weight_decay)),
        keep(static_cast<T>(1 - o.lr * o.weight_decay)),
        momentum(static_cast<T>(o.momentum)),
        one_minus_dampening(static_cast<T>(1 - o.dampening)),
        lr(static_cast<T>(o.lr)) {}

  const T scale;
  const T decay;
  const T keep;
  const T momentum;
  const T one_minus_dampening;
  const T lr;
};

// What becomes of the momentum buffer.
enum class Momentum { kNone, kFirst, kNext };

// `m` is not touched without momentum.
template <Acts decay, Momentum momentum, bool nesterov>
struct SGDLoop {
  template <typename T>
  [[gnu::always_inline]] static void Run(const SGDConstants<T> c, size_t n,
                                         T* __restrict param,
                                         const T* __restrict grad,
                                         [[maybe_unused]] T* __restrict m,
                                         T* /*v*/) {
    for (size_t i = 0; i < n; ++i) {
      const T p = param[i];
      T g = c.scale * grad[i];
      if constexpr (decay == Acts::kOnGradient) g = g + c.decay * p;
      if constexpr (momentum != Momentum::kNone) {
        const T m_new = momentum == Momentum::kFirst
                            ? g
                            : c.momentum * m[i] + c.one_minus_dampening * g;
        m[i] = m_new;
        g = nesterov ? g + c.momentum * m_new : m_new;
      }
      const T kept = decay == Acts::kOnParameter ? c.keep * p : p;
      param[i] = kept - c.lr * g;
    }
  }
};

template <typename Loop, typename Constants, typename T>
[[gnu::always_inline]] inline void RunHere(const Constants& c,
                                           const Elements<T>& e) {
  Loop::Run(c, e.param.size(), e.param.data(), e.grad.data(),
            e.moments[0].data(), e.moments[1].data());
}

// Square root and two divisions an element: four lanes of them are slower than
// the memory.
#if defined(__x86_64__)
template <typename Loop, typename Constants, typename T>
[[gnu::target("avx2")]] void RunWide(const Constants& c, const Elements<T>& e) {
  RunHere<Loop>(c, e);
}
#endif

template <typename Loop, typename Constants, typename T>
void Run(const Constants& c, const Elements<T>& e) {
#if defined(__x86_64__)
  static const bool is_wide = __builtin_cpu_supports("avx2");
  if (is_wide) return RunWide<Loop>(c, e);
#endif
  RunHere<Loop>(c, e);
}

template <typename T>
void Update(const AdamWOptions& o, int64_t step, double gradient_scale,
            const Elements<T>& e) {
  // Without decay too: then the factor is 1, which changes no bit.
  Run<AdamLoop<Acts::kOnParameter>>(AdamConstants<T>(o, step, gradient_scale),
                                    e);
}

template <typename T>
void Update(const AdamOptions& o, int64_t step, double gradient_scale,
            const Elements<T>& e) {
  const AdamConstants<T> c(o, step, gradient_scale);
  if (o.weight_decay == 0) return Run<AdamLoop<Acts::kNowhere>>(c, e);
  Run<AdamLoop<Acts::kOnGradient>>(c, e);
}

template <Acts decay, Momentum momentum, typename T>
void UpdateSGD(bool nesterov, const SGDConstants<T>& c, const Elements<T>& e) {
  if (nesterov) return Run<SGDLoop<decay, momentum, true>>(c, e);
  Run<SGDLoop<decay, momentum, false>>(c, e);
}

template <Acts decay, typename T>
void UpdateSGD(const SGDOptions& o, int64_t step, const SGDConstants<T>& c,
               const Elements<T>& e) {
  if (o.momentum == 0) {
    Run<SGDLoop<decay, Momentum::kNone, false>>(c, e);
  } else if (step == 1) {
    UpdateSGD<decay, Momentum::kFirst>(o.nesterov, c, e);
  } else {
    UpdateSGD<decay, Momentum::kNext>(o.nesterov, c, e);
  }
}

template <typename T>
void Update(const SGDOptions& o, int64_t step, double gradient_scale,
            const Elements<T>& e) {
  const SGDConstants<T> c(o, gradient_scale);
  if (o.weight_decay == 0) {
    UpdateSGD<Acts::kNowhere>(o, step, c, e);
  } else if (o.decay == Decay::kDecoupled) {
    UpdateSGD<Acts::kOnParameter>(o, step, c, e);
  } else {
    UpdateSGD<Acts::kOnGradient>(o, step, c, e);
  }
}

template <typename T>
void Check(const OptimizerOptions& options, int64_t step,
           const Elements<T>& e) {
  Validate(options);
  if (step < 1) {
    throw InvalidArgument(fmt::format(
        "{}: step is {}; the first update is step 1", NameOf(options), step));
  }
  const auto check = [&](const std::string& name, size_t size) {
    if (size == e.param.size()) return;
    throw InvalidArgument(
        fmt::format("{}: {} has {} elements; expected {} as in param",
                    NameOf(options), name, size, e.param.size()));
  };
  check("grad", e.grad.size());
  for (int i = 0; i < NumMoments(options); ++i) {
    check(fmt::format("moment {}", i + 1),
          e.moments[static_cast<size_t>(i)].size());
  }
}

}  // namespace

template <typename T>
void UpdateElements(const OptimizerOptions& options, int64_t step,
                    double gradient_scale, const Elements<T>& elements) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  Check(options, step, elements);
  std::visit(
      [&](const auto& o) { Update<T>(o, step, gradient_scale, elements); },
      options);
}

template void UpdateElements<float>(const OptimizerOptions&, int64_t, double,
                                    const Elements<float>&);
template void UpdateElements<double>(const OptimizerOptions&, int64_t, double,
                                     const Elements<double>&);

}  // namespace trainsys
