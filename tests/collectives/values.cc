#include "tests/collectives/values.h"

#include <cstdint>

namespace collectives {

Bytes Cast(DType dtype, const std::vector<float>& values) {
  const auto as = [&values](auto to) {
    std::vector<decltype(to(0.0F))> result;
    for (float v : values) result.push_back(to(v));
    return BytesOf(result);
  };
  switch (dtype) {
    case DType::kF64:
      return as([](float v) { return static_cast<double>(v); });
    case DType::kF32:
      return BytesOf(values);
    case DType::kBF16:
      return as(ToBF16);
    case DType::kF16:
      return as(ToF16);
    case DType::kI64:
      return as([](float v) { return static_cast<int64_t>(v); });
    case DType::kI32:
      return as([](float v) { return static_cast<int32_t>(v); });
    case DType::kU8:
      break;
  }
  return as([](float v) { return static_cast<uint8_t>(v); });
}

std::vector<float> Floats(DType dtype, const Bytes& bytes) {
  std::vector<float> result;
  if (dtype == DType::kF64) {
    for (double v : ValuesOf<double>(bytes)) {
      result.push_back(static_cast<float>(v));
    }
    return result;
  }
  if (dtype == DType::kF32) return ValuesOf<float>(bytes);
  for (uint16_t v : ValuesOf<uint16_t>(bytes)) {
    result.push_back(dtype == DType::kF16 ? FromF16(v) : FromBF16(v));
  }
  return result;
}

}  // namespace collectives
