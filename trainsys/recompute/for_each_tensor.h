// Finds the tensors inside values: in what a segment is called with and in
// what it keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <vector>

namespace trainsys {

using TensorVisitor = std::function<void(at::Tensor&)>;

// Calls `visit` on each tensor inside `value`, in order: a tensor, undefined or
// not, and optional, pair, tuple, array, vector and other ranges that own such.
// Anything else holds none, but for types of the caller's that say so:
//
//   void ForEachTensor(Batch& batch, const trainsys::TensorVisitor& visit) {
//     visit(batch.tokens);
//     visit(batch.mask);
//   }
//
// in the type's own namespace.
template <typename T>
void VisitTensors(T& value, const TensorVisitor& visit) {
  static_assert(!std::is_same_v<T, const at::Tensor>,
                "pass a container that owns its tensors, e.g. std::vector");
  if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(value);
  } else if constexpr (requires { ForEachTensor(value, visit); }) {
    ForEachTensor(value, visit);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... e) { (VisitTensors(e, visit), ...); }, value);
  } else if constexpr (requires { value.has_value(), *value; }) {
    if (value.has_value()) VisitTensors(*value, visit);
  } else if constexpr (std::ranges::forward_range<T>) {
    using Element = std::ranges::range_value_t<T>;
    // A path, for one, is a range of paths.
    if constexpr (!std::is_arithmetic_v<Element> &&
                  !std::is_same_v<Element, T>) {
      static_assert(!std::ranges::view<T>,
                    "pass a container that owns its tensors: those behind a "
                    "view are the caller's, and are not ours to take");
      for (auto& element : value) VisitTensors(element, visit);
    }
  }
}

// Takes the tensors out of `value`, leaving undefined ones.
template <typename T>
std::vector<at::Tensor> TakeTensors(T& value) {
  std::vector<at::Tensor> tensors;
  VisitTensors(value, [&](at::Tensor& t) { tensors.push_back(std::move(t)); });
  return tensors;
}

// Puts `tensors` where TakeTensors found them.
template <typename T>
void PutTensors(T& value, const std::vector<at::Tensor>& tensors) {
  auto next = tensors.begin();
  VisitTensors(value, [&](at::Tensor& t) { t = *next++; });
}

}  // namespace trainsys
