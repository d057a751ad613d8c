#include "tools/optimizer_bench/arrays.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <cstddef>
#include <span>
#include <thread>
#include <vector>

namespace trainsys {
namespace {

// As wide as the update is where the processor is.
#if defined(__x86_64__)
#define AS_WIDE [[gnu::target_clones("avx2", "default")]]
#else
#define AS_WIDE
#endif

// One instruction for each array that is written; moments stay sane.
AS_WIDE void ReadFourWriteThree(size_t n, float* __restrict param,
                                const float* __restrict grad,
                                float* __restrict m, float* __restrict v) {
  for (size_t i = 0; i < n; ++i) {
    param[i] = param[i] + grad[i];
    m[i] = m[i] + grad[i];
    v[i] = v[i] < grad[i] ? grad[i] : v[i];
  }
}

AS_WIDE uint32_t ReadOnce(size_t n, const float* x) {
  uint32_t bits = 0;
  for (size_t i = 0; i < n; ++i) bits |= std::bit_cast<uint32_t>(x[i]);
  return bits;
}

std::span<float> PartOf(const at::Tensor& tensor, int64_t begin, int64_t end) {
  return {tensor.data_ptr<float>() + begin, static_cast<size_t>(end - begin)};
}

}  // namespace

Arrays::Arrays(int64_t elems)
    : param(at::randn({elems})),
      grad(at::randn({elems}).mul_(1e-3)),
      m(at::zeros({elems})),
      v(at::zeros({elems})) {}

Elements<float> Arrays::Part(int64_t begin, int64_t end) const {
  return {PartOf(param, begin, end),
          PartOf(grad, begin, end),
          {PartOf(m, begin, end), PartOf(v, begin, end)}};
}

void OnThreads(int threads, int64_t elems,
               const std::function<void(int64_t, int64_t)>& work) {
  const auto begin = [&](int thread) { return elems * thread / threads; };
  std::vector<std::jthread> others;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back([&, t] { work(begin(t), begin(t + 1)); });
  }
  work(0, begin(1));
}

void ReadFourWriteThree(const Elements<float>& e) {
  ReadFourWriteThree(e.param.size(), e.param.data(), e.grad.data(),
                     e.moments[0].data(), e.moments[1].data());
}

uint32_t ReadOnce(const Elements<float>& e) {
  return ReadOnce(e.grad.size(), e.grad.data());
}

}  // namespace trainsys
