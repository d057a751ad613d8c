#include "trainsys/svg/svg.h"

#include <fmt/core.h>

#include <cmath>

namespace trainsys {
namespace {

// As XML wants it where the picture is a file; a page needs no address.
std::string_view NameSpace(SvgPlace place) {
  return place == SvgPlace::kFile ? " xmlns=\"http://www.w3.org/2000/svg\""
                                  : "";
}

std::string Length(double px, SvgPlace place) {
  if (place == SvgPlace::kFile) return Px(px);
  return fmt::format("{:.2f}rem", px / kTypePx);
}

std::string Attributes(SvgAttributes attributes) {
  std::string text;
  for (const SvgAttribute& a : attributes) {
    text += fmt::format(" {}=\"{}\"", a.name, EscapeMarkup(a.value));
  }
  return text;
}

}  // namespace

std::string EscapeMarkup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

std::string Px(double length) {
  const double tenths = std::round(length * 10) / 10;
  return fmt::format("{}", tenths == 0 ? 0.0 : tenths);
}

SvgWriter::SvgWriter(const SvgHead& head) {
  text_ = fmt::format(
      "<svg{} class=\"picture\" viewBox=\"0 0 {} {}\" width=\"{}\" "
      "height=\"{}\" role=\"img\" aria-labelledby=\"{}-title {}-desc\">\n",
      NameSpace(head.place), Px(head.width), Px(head.height),
      Length(head.width, head.place), Length(head.height, head.place), head.id,
      head.id);
  text_ += fmt::format("<title id=\"{}-title\">{}</title>\n", head.id,
                       EscapeMarkup(head.title));
  text_ += fmt::format("<desc id=\"{}-desc\">{}</desc>\n", head.id,
                       EscapeMarkup(head.description));
  if (head.place == SvgPlace::kFile) {
    text_ += "<style>" + SvgStyle() + "</style>\n";
    Add("rect", {{"class", "paper"}, {"width", "100%"}, {"height", "100%"}});
  }
}

void SvgWriter::Add(std::string_view tag, SvgAttributes attributes,
                    std::string_view title) {
  text_ += fmt::format("<{}{}", tag, Attributes(attributes));
  if (title.empty()) {
    text_ += "/>\n";
  } else {
    text_ += fmt::format("><title>{}</title></{}>\n", EscapeMarkup(title), tag);
  }
}

void SvgWriter::AddText(double x, double y, std::string_view text,
                        std::string_view classes) {
  text_ += fmt::format(
      "<text{}>{}</text>\n",
      Attributes({{"x", Px(x)}, {"y", Px(y)}, {"class", std::string(classes)}}),
      EscapeMarkup(text));
}

void SvgWriter::AddLine(double x1, double y1, double x2, double y2,
                        std::string_view classes) {
  Add("line", {{"class", std::string(classes)},
               {"x1", Px(x1)},
               {"y1", Px(y1)},
               {"x2", Px(x2)},
               {"y2", Px(y2)}});
}

void SvgWriter::Open(SvgAttributes attributes) {
  text_ += "<g" + Attributes(attributes) + ">\n";
}

void SvgWriter::Close() { text_ += "</g>\n"; }

std::string SvgWriter::Finish() { return text_ + "</svg>\n"; }

std::string SvgStyle() {
  std::string style = R"(
:root { --ink: #1b1b1b; --muted: #595959; --paper: #ffffff; --grid: #dddddd;
  --c1: #0072b2; --c2: #d55e00; --c3: #009e73; --c4: #b86092; --c5: #56b4e9;
  --c6: #e69f00; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #ececec; --muted: #b0b0b0; --paper: #16181c; --grid: #3a3d44;
    --c1: #4ba3e3; --c2: #f08a4b; --c3: #2fc79a; --c4: #d993bb; --c5: #8ccbf2;
    --c6: #f0c04a; }
}
.picture { font: 11.4px/1.2 "Liberation Sans", Arial, Helvetica,
  "DejaVu Sans Condensed", sans-serif; }
.picture text { fill: var(--ink); }
.picture .muted { fill: var(--muted); }
.picture .bold { font-weight: 700; }
.picture .end { text-anchor: end; }
.picture .middle { text-anchor: middle; }
.picture .paper { fill: var(--paper); }
.picture .halo { paint-order: stroke; stroke: var(--paper); stroke-width: 3px;
  stroke-linejoin: round; }
.picture .axis { stroke: var(--ink); fill: none; }
.picture .band { fill: var(--grid); opacity: 0.4; }
.picture .grid { stroke: var(--grid); fill: none; }
)";
  for (int i = 1; i <= 6; ++i) {
    style += fmt::format(
        ".picture .fill{0} {{ fill: var(--c{0}); }}\n"
        ".picture .stroke{0} {{ stroke: var(--c{0}); fill: none; "
        "stroke-width: 1.8; }}\n",
        i);
  }
  return style + R"(.picture .dashed { stroke-dasharray: 5 3; }
.picture .dotted { stroke-dasharray: 1.5 2.5; }
.picture .thin { stroke-width: 1; }
.picture .hollow { fill: var(--paper); }
)";
}

}  // namespace trainsys
