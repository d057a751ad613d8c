#include "trainsys/report/sentence.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "trainsys/svg/axis.h"

namespace trainsys {
namespace {

constexpr double kMiB = 1 << 20;

}  // namespace

Sentence& Sentence::operator+=(const Sentence& more) {
  pieces.insert(pieces.end(), more.pieces.begin(), more.pieces.end());
  return *this;
}

Sentence operator+(Sentence begin, const Sentence& end) {
  begin += end;
  return begin;
}

std::string WithCommas(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", std::abs(value), decimals);
  const size_t point = std::min(text.find('.'), text.size());
  for (size_t at = point; at > 3; at -= 3) text.insert(at - 3, ",");
  const bool is_zero = text.find_first_not_of("0.,") == std::string::npos;
  return value < 0 && !is_zero ? "-" + text : text;
}

std::string Plain(const Sentence& sentence) {
  std::string text;
  for (const Piece& piece : sentence.pieces) text += piece.text;
  return text;
}

const nlohmann::ordered_json& Figures::At(std::string_view path) const {
  std::string pointer = "/" + std::string(path);
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return report_.at(nlohmann::ordered_json::json_pointer(pointer));
}

double Figures::Value(std::string_view path) const {
  return At(path).get<double>();
}

std::string Figures::Text(std::string_view path) const {
  return At(path).get<std::string>();
}

size_t Figures::Size(std::string_view path) const { return At(path).size(); }

Sentence Figures::Number(const std::string& path, int decimals,
                         double unit) const {
  // What is not finite is null in JSON.
  if (At(path).is_null()) return Piece{"none", path, 0, 0};
  const double value = Value(path);
  return Piece{WithCommas(value / unit, decimals), path, value, unit};
}

Sentence Figures::BucketSize(const std::string& path) const {
  const std::string text = BinaryBytes(At(path).get<int64_t>());
  const size_t space = text.find(' ');
  const std::string name = text.substr(space);
  const double unit = name == " MiB" ? kMiB : name == " KiB" ? 1024 : 1;
  return Number(path, 0, unit) + name;
}

Sentence Figures::MiB(const std::string& path) const {
  return Number(path, 1, kMiB) + " MiB";
}

Sentence Figures::Quote(const std::string& path) const {
  return Piece{Text(path), path, 0, 0};
}

}  // namespace trainsys
