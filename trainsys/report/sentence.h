// Text in which every figure knows its place in report.json. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace trainsys {

// Plain text, or a figure as it is shown.
struct Piece {
  std::string text;
  std::string path = {};  // of a figure: "buckets.sweeps.0.turns"
  double value = 0;       // as it stands there
  double unit = 1;        // the text counts in these
};

struct Sentence {
  Sentence() = default;
  Sentence(std::string text) {  // NOLINT: implicit
    pieces.push_back({.text = std::move(text)});
  }
  Sentence(const char* text) : Sentence(std::string(text)) {}  // NOLINT
  Sentence(Piece piece) : pieces({std::move(piece)}) {}  // NOLINT: implicit

  Sentence& operator+=(const Sentence& more);
  bool IsEmpty() const { return pieces.empty(); }

  std::vector<Piece> pieces;
};

Sentence operator+(Sentence begin, const Sentence& end);

// "-1,234.50"; never "-0".
std::string WithCommas(double value, int decimals);

// Without the places.
std::string Plain(const Sentence& sentence);

// The report as JSON, asked for figures by their dotted path. Lifetime: the
// JSON outlives it.
// Errors of all functions: nlohmann::json::exception for a path that is not
// there or not of that kind.
class Figures {
 public:
  explicit Figures(const nlohmann::ordered_json& report) : report_(report) {}

  double Value(std::string_view path) const;
  std::string Text(std::string_view path) const;
  size_t Size(std::string_view path) const;

  // With so many decimals, thousands parted by commas, in multiples of `unit`.
  Sentence Number(const std::string& path, int decimals = 0,
                  double unit = 1) const;
  // "1 MiB": in the largest binary unit that divides it.
  Sentence BucketSize(const std::string& path) const;
  // "15.3 MiB".
  Sentence MiB(const std::string& path) const;
  // A text of the report, as it stands there.
  Sentence Quote(const std::string& path) const;

 private:
  const nlohmann::ordered_json& At(std::string_view path) const;

  const nlohmann::ordered_json& report_;
};

}  // namespace trainsys
