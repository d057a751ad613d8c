// Scalable vector graphics, as text. Pure.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainsys {

// As text between tags and between quotes: & < > " are written as entities,
// and control characters, which no document may hold, as spaces.
std::string EscapeMarkup(std::string_view text);

// The size of type in a picture: 8.5 pt on paper.
inline constexpr double kTypePx = 11.4;

// A length in pixels, to a tenth: "12", "12.5".
std::string Px(double length);

struct SvgAttribute {
  std::string_view name;
  std::string value;
};
using SvgAttributes = std::initializer_list<SvgAttribute>;

// Where a picture stands: within a page, whose styles and name space it takes,
// and grows with the page's type; or in a file of its own.
enum class SvgPlace { kInline, kFile };

struct SvgHead {
  std::string id;           // what the picture's own ids begin with
  std::string title;        // in a few words
  std::string description;  // what it shows, for those who do not see it
  double width = 0, height = 0;
  SvgPlace place = SvgPlace::kInline;
};

// Writes one picture, element by element. Colours come from classes that
// SvgStyle() defines.
//
// Example:
//   SvgWriter svg({"times", "Times", "Two times as bars.", 200, 100});
//   svg.Add("rect", {{"class", "fill1"}, {"width", Px(20)}}, "first: 20 ms");
//   svg.AddText(5, 12, "first");
//   const std::string text = svg.Finish();
class SvgWriter {
 public:
  explicit SvgWriter(const SvgHead& head);

  // One element; `title`: what a pointer that rests on it is told.
  void Add(std::string_view tag, SvgAttributes attributes,
           std::string_view title = "");
  // `classes`: those of SvgStyle(), "end muted" for instance.
  void AddText(double x, double y, std::string_view text,
               std::string_view classes = "");
  void AddLine(double x1, double y1, double x2, double y2,
               std::string_view classes);

  // Those until Close() are one group.
  void Open(SvgAttributes attributes);
  void Close();

  // Call: once.
  std::string Finish();

 private:
  std::string text_;
};

// Custom properties and classes for pictures, for light and dark screens and
// for paper. Okabe and Ito's colours, which the colour-blind can tell apart:
//   fill1 .. fill6, stroke1 .. stroke6   a series
//   dashed, dotted, hollow, thin, bold   how it is drawn
//   axis, grid, band, halo               what is around it
//   end, middle, muted                   text
std::string SvgStyle();

}  // namespace trainsys
