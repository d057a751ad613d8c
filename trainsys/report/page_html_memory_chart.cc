#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "trainsys/report/page_html_chart_parts.h"
#include "trainsys/report/page_html_charts.h"
#include "trainsys/svg/axis.h"
#include "trainsys/svg/svg.h"

namespace trainsys {
namespace {

using enum MemoryCategory;

// What is drawn as one area, lowest first.
struct Layer {
  const char* name;
  std::vector<MemoryCategory> categories;
};

const std::array<Layer, 6>& Layers() {
  static const std::array<Layer, 6> layers = {
      {{"parameters", {kParameter}},
       {"gradients", {kGradient}},
       {"optimizer state", {kOptimizerState}},
       {"buffers", {kCommunication, kInput, kOther, kPadding}},
       {"activations", {kActivation}},
       {"temporaries", {kTemporary}}}};
  return layers;
}

double BytesOf(const MemorySplit& split, const Layer& layer) {
  int64_t bytes = 0;
  for (const MemoryCategory c : layer.categories) bytes += split[c];
  return static_cast<double>(bytes);
}

const MemorySample* PeakOf(const MemoryTimeline& timeline) {
  const MemorySample* peak = nullptr;
  for (const MemorySample& s : timeline.samples) {
    if (!peak || s.split.Total() > peak->split.Total()) peak = &s;
  }
  return peak;
}

double EndMs(const MemoryTimeline& timeline) {
  double end = timeline.samples.empty() ? 0 : timeline.samples.back().ms;
  for (const TimedPhase& phase : timeline.phases) {
    end = std::max(end, phase.end_ms);
  }
  return end;
}

// From each sample to the next, as steps; down to `below`, what lies under.
std::string AreaOf(const MemoryTimeline& timeline, const Axis& x, const Axis& y,
                   size_t layer) {
  std::vector<std::pair<double, double>> top, bottom;
  const std::vector<MemorySample>& samples = timeline.samples;
  for (size_t i = 0; i < samples.size(); ++i) {
    double below = 0;
    for (size_t l = 0; l < layer; ++l) {
      below += BytesOf(samples[i].split, Layers()[l]);
    }
    const double above = below + BytesOf(samples[i].split, Layers()[layer]);
    const bool is_last = i + 1 == samples.size();
    const double to = is_last ? EndMs(timeline) : samples[i + 1].ms;
    for (const double ms : {samples[i].ms, to}) {
      top.emplace_back(x.At(ms), y.At(above));
      bottom.emplace_back(x.At(ms), y.At(below));
    }
  }
  top.insert(top.end(), bottom.rbegin(), bottom.rend());
  return PolyLine(top) + "Z";
}

void DrawPhases(SvgWriter& svg, const MemoryTimeline& timeline, const Axis& x,
                const Axis& y) {
  constexpr double kCharacterPx = 6.2;
  for (const TimedPhase& phase : timeline.phases) {
    const double begin = x.At(phase.begin_ms), end = x.At(phase.end_ms);
    svg.AddLine(end, y.Begin() + 4, end, y.End(), "axis dotted");
    const double width = kCharacterPx * static_cast<double>(phase.name.size());
    if (width > end - begin) continue;
    svg.AddText((begin + end) / 2, y.Begin() + 13, phase.name, "middle muted");
  }
}

void DrawTimeline(SvgWriter& svg, const MemoryFinding& memory, size_t t,
                  const Axis& x, const Axis& y) {
  const MemoryTimeline& timeline = memory.timelines[t];
  for (size_t layer = 0; layer < Layers().size(); ++layer) {
    svg.Add("path",
            {{"class", fmt::format("area fill{}", layer + 1)},
             {"d", AreaOf(timeline, x, y, layer)}},
            Layers()[layer].name);
  }
  DrawPhases(svg, timeline, x, y);
  svg.AddLine(x.Begin(), y.Begin(), x.End(), y.Begin(), "axis");
  const MemorySample* peak = PeakOf(timeline);
  if (peak == nullptr) return;
  const auto bytes = static_cast<double>(peak->split.Total());
  const std::string says =
      fmt::format("recompute {}: peak {}", timeline.recompute, Mibi(bytes));
  svg.Add("circle",
          {{"class", "hollow axis"},
           {"cx", Px(x.At(peak->ms))},
           {"cy", Px(y.At(bytes))},
           {"r", "3"},
           {"data-json", fmt::format("memory.timelines.{}.peak_bytes", t)},
           {"data-value", fmt::format("{}", peak->split.Total())}},
          says);
  svg.AddText(x.Begin(), y.End() - 7, says, "bold");
  svg.AddText(x.End(), y.Begin() + 13,
              fmt::format("{:.0f} ms", EndMs(timeline)), "end muted halo");
}

void DrawLegend(SvgWriter& svg, double x, double y) {
  for (size_t i = Layers().size(); i-- > 0;) {
    svg.Add("rect", {{"class", fmt::format("fill{}", i + 1)},
                     {"x", Px(x)},
                     {"y", Px(y - 9)},
                     {"width", "10"},
                     {"height", "10"}});
    svg.AddText(x + 15, y, Layers()[i].name);
    y += 15.5;
  }
}

}  // namespace

std::string MemoryChart(const MemoryFinding& memory) {
  constexpr double kWidth = 732, kHeight = 112, kPanel = 264;
  constexpr double kTop = 20, kBottom = 96;
  std::string says =
      "Bytes that rank 0 holds, from the step's begin to its end:";
  double most = 0;
  for (const MemoryTimeline& timeline : memory.timelines) {
    const MemorySample* peak = PeakOf(timeline);
    if (peak == nullptr) continue;
    const auto bytes = static_cast<double>(peak->split.Total());
    most = std::max(most, bytes / kMiB);
    says +=
        fmt::format(" recompute {}: at most {}, after {:.0f} of {:.0f} ms;",
                    timeline.recompute, Mibi(bytes), peak->ms, EndMs(timeline));
  }
  SvgWriter svg({"memory", "One step's memory by category over time", says,
                 kWidth, kHeight});
  const Stretch stretch = RoundStretch(0, most, 4);
  for (size_t t = 0; t < memory.timelines.size() && t < 2; ++t) {
    const double left = 44 + static_cast<double>(t) * (kPanel + 34);
    const Axis mib(stretch.from, stretch.to, kBottom, kTop);
    const Axis bytes(stretch.from * kMiB, stretch.to * kMiB, kBottom, kTop);
    const Axis x(0, EndMs(memory.timelines[t]), left, left + kPanel);
    DrawScale(svg, x, mib, 4, t == 0 ? "MiB" : "");
    DrawTimeline(svg, memory, t, x, bytes);
  }
  DrawLegend(svg, 44 + 2 * (kPanel + 34) - 16, 28);
  return svg.Finish();
}

}  // namespace trainsys
