#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trainsys/report/answers.h"
#include "trainsys/report/page_html_chart_parts.h"
#include "trainsys/report/page_html_charts.h"
#include "trainsys/svg/axis.h"
#include "trainsys/svg/svg.h"

namespace trainsys {
namespace {

class RecomputePicture {
 public:
  explicit RecomputePicture(const RecomputeFinding& recompute)
      : recompute_(recompute),
        x_(0, Most().to, 44, kWidth - 12),
        y_(Extra().from, Extra().to, kHeight - 32, 22),
        svg_({"recompute", "Extra time over the activations' peak", Says(),
              kWidth, kHeight}) {}

  std::string Draw() {
    DrawScale(svg_, x_, y_, 4, "% time");
    DrawPeaks();
    DrawKeys();
    const double third = y_.At(kForwardPercent);
    svg_.AddLine(x_.Begin(), third, x_.End(), third, "stroke3 dotted");
    svg_.AddText(x_.End(), third - 4,
                 fmt::format("one more forward, {:.1f} %", kForwardPercent),
                 "end halo");
    // Names first: where they have no free place, points lie over them.
    TakePlaces();
    for (size_t i = 0; i < recompute_.costs.size(); ++i) DrawName(i);
    for (size_t i = 0; i < recompute_.costs.size(); ++i) DrawModel(i);
    for (size_t i = 0; i < recompute_.costs.size(); ++i) DrawCost(i);
    return svg_.Finish();
  }

 private:
  static constexpr double kWidth = 340, kHeight = 128;

  std::string Says() const {
    std::string says = "Extra time of each policy, in percent of none:";
    for (const RecomputeCost& c : recompute_.costs) {
      says += fmt::format(" {} {:.1f} with a peak of {};", c.policy,
                          c.extra_percent.median,
                          Mibi(static_cast<double>(c.peak_bytes)));
    }
    return says + fmt::format(" one more forward is {:.1f}.", kForwardPercent);
  }

  Stretch Most() const {
    double most = 0;
    for (const RecomputeCost& c : recompute_.costs) {
      most = std::max(most, static_cast<double>(c.peak_bytes) / kMiB);
    }
    return RoundStretch(0, most * 1.08, 5);
  }

  Stretch Extra() const {
    double least = 0, most = kForwardPercent + 3;
    for (const RecomputeCost& c : recompute_.costs) {
      least = std::min({least, c.extra_percent.low, c.model_extra_percent});
      most = std::max({most, c.extra_percent.high, c.model_extra_percent});
    }
    return RoundStretch(least, most, 4);
  }

  double X(const RecomputeCost& c) const {
    return x_.At(static_cast<double>(c.peak_bytes) / kMiB);
  }

  void DrawPeaks() {
    svg_.AddLine(x_.Begin(), y_.Begin(), x_.End(), y_.Begin(), "axis");
    for (const double tick : RoundTicks(x_.From(), x_.To(), 5)) {
      svg_.AddLine(x_.At(tick), y_.Begin(), x_.At(tick), y_.Begin() + 4,
                   "axis");
      svg_.AddText(x_.At(tick), y_.Begin() + 16, fmt::format("{:g}", tick),
                   "middle muted");
    }
    svg_.AddText(x_.End(), y_.Begin() + 30, "activations at their peak, MiB",
                 "end muted");
  }

  void DrawKeys() {
    const double y = 12, x = x_.Begin();
    svg_.Add("circle", {{"class", "fill1"},
                        {"cx", Px(x + 10)},
                        {"cy", Px(y - 4)},
                        {"r", "3.5"}});
    svg_.AddText(x + 18, y, "measured");
    svg_.Add("rect", {{"class", "hollow stroke2"},
                      {"x", Px(x + 87)},
                      {"y", Px(y - 7)},
                      {"width", "6"},
                      {"height", "6"}});
    svg_.AddText(x + 98, y, "by FLOPs");
  }

  // A hollow square, tied to the measured point.
  void DrawModel(size_t i) {
    const RecomputeCost& c = recompute_.costs[i];
    const double y = y_.At(c.model_extra_percent);
    svg_.AddLine(X(c), y, X(c), y_.At(c.extra_percent.median),
                 "stroke2 dotted");
    svg_.Add(
        "rect",
        {{"class", "hollow stroke2"},
         {"x", Px(X(c) - 3)},
         {"y", Px(y - 3)},
         {"width", "6"},
         {"height", "6"},
         {"data-json",
          fmt::format("recompute.costs.{}.model_extra_percent", i)},
         {"data-value", fmt::format("{}", c.model_extra_percent)}},
        fmt::format("{} by FLOPs: {:.1f} %", c.policy, c.model_extra_percent));
  }

  void DrawCost(size_t i) {
    const RecomputeCost& c = recompute_.costs[i];
    const double y = y_.At(c.extra_percent.median);
    DrawBar(svg_, X(c), y_.At(c.extra_percent.low),
            y_.At(c.extra_percent.high));
    svg_.Add("circle",
             {{"class", "fill1"},
              {"cx", Px(X(c))},
              {"cy", Px(y)},
              {"r", "3.5"},
              {"data-json",
               fmt::format("recompute.costs.{}.extra_percent.median", i)},
              {"data-value", fmt::format("{}", c.extra_percent.median)}},
             fmt::format("{}: {:.1f} % (quartiles {:.1f} to {:.1f}), peak {}",
                         c.policy, c.extra_percent.median, c.extra_percent.low,
                         c.extra_percent.high,
                         Mibi(static_cast<double>(c.peak_bytes))));
  }

  // Where no name can stand: points, their bars, the axis and the third.
  void TakePlaces() {
    for (const RecomputeCost& c : recompute_.costs) {
      const auto [least, most] = std::minmax(
          {c.extra_percent.low, c.extra_percent.high, c.model_extra_percent});
      const double top = y_.At(most) - 4;
      taken_.push_back({X(c) - 4, top, 8, y_.At(least) + 4 - top});
    }
    for (const double percent : {y_.From(), kForwardPercent}) {
      taken_.push_back(
          {x_.Begin(), y_.At(percent) - 1, x_.End() - x_.Begin(), 2});
    }
  }

  // Beside its point, where nothing else stands.
  void DrawName(size_t i) {
    constexpr double kCharacterPx = 6.4, kHigh = 11;
    const RecomputeCost& c = recompute_.costs[i];
    const double x = X(c), y = y_.At(c.extra_percent.median);
    const double width = kCharacterPx * static_cast<double>(c.policy.size());
    const auto box = [&](double left, double top) {
      return Box{left, top, width, kHigh};
    };
    std::vector<Box> tries;
    for (const double up :
         {0.0, 7.0, -7.0, 12.0, -12.0, 18.0, -18.0, 24.0, -24.0}) {
      const double top = y - kHigh / 2 - up;
      if (x + 8 + width < x_.End()) tries.push_back(box(x + 8, top));
      tries.push_back(box(x - 8 - width, top));
    }
    const Box place = PlaceFree(tries, taken_);
    const bool is_left = place.left < x;
    svg_.AddText(is_left ? place.left + width : place.left,
                 place.top + kHigh - 1.5, c.policy,
                 is_left ? "end halo" : "halo");
  }

  const RecomputeFinding& recompute_;
  const Axis x_, y_;
  std::vector<Box> taken_;
  SvgWriter svg_;
};

}  // namespace

std::string RecomputeChart(const RecomputeFinding& recompute) {
  return RecomputePicture(recompute).Draw();
}

}  // namespace trainsys
