#include "trainsys/report/page_html_chart_parts.h"

#include <fmt/core.h>

namespace trainsys {

std::string Mibi(double bytes) {
  return fmt::format("{:.1f} MiB", bytes / kMiB);
}

std::string PolyLine(const std::vector<std::pair<double, double>>& places) {
  std::string path;
  for (const auto& [x, y] : places) {
    path += fmt::format("{}{} {}", path.empty() ? "M" : "L", Px(x), Px(y));
  }
  return path;
}

void DrawScale(SvgWriter& svg, const Axis& x, const Axis& y, int count,
               const std::string& unit) {
  for (const double tick : RoundTicks(y.From(), y.To(), count)) {
    svg.AddLine(x.Begin(), y.At(tick), x.End(), y.At(tick), "grid");
    svg.AddText(x.Begin() - 5, y.At(tick) + 4, fmt::format("{:g}", tick),
                "end muted");
  }
  svg.AddText(x.Begin() - 5, y.End() - 9, unit, "end muted");
}

void DrawBar(SvgWriter& svg, double x, double low, double high) {
  svg.AddLine(x, low, x, high, "axis");
  for (const double end : {low, high}) {
    svg.AddLine(x - 3, end, x + 3, end, "axis");
  }
}

}  // namespace trainsys
