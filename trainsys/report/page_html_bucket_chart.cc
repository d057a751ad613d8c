#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "trainsys/report/answers.h"
#include "trainsys/report/page_html_chart_parts.h"
#include "trainsys/report/page_html_charts.h"
#include "trainsys/svg/axis.h"
#include "trainsys/svg/svg.h"

namespace trainsys {
namespace {

Stretch TimesOf(const BucketSweep& sweep) {
  double least = sweep.no_overlap_ms.median, most = least;
  for (const BucketPoint& p : sweep.points) {
    least = std::min({least, p.step_ms.low, p.model_step_ms});
    most = std::max({most, p.step_ms.high, p.model_step_ms});
  }
  return RoundStretch(least, most, 4);
}

class BucketPicture {
 public:
  BucketPicture(const BucketSweep& sweep, const BucketAnswer& answer,
                const std::string& path)
      : sweep_(sweep),
        answer_(answer),
        path_(path),
        stretch_(TimesOf(sweep)),
        svg_({"buckets", "Time of a step over the size of buckets", Says(),
              kWidth, kHeight}) {}

  std::string Draw() {
    DrawScale(svg_, x_, y_, 4, "ms");
    DrawSizes();
    DrawWithoutOverlap();
    DrawModel();
    DrawMeasured();
    DrawKeys();
    return svg_.Finish();
  }

 private:
  static constexpr double kWidth = 380, kHeight = 166;

  std::string Says() const {
    const BucketPoint& best = sweep_.points[answer_.best];
    const BucketPoint& model = sweep_.points[answer_.model_best];
    return fmt::format(
        "{} ranks, sizes from {} to {}: measured least {:.1f} ms with {}{}, by "
        "the model {:.1f} ms with {}{}; without overlap {:.1f} ms. The "
        "vertical axis does not begin at 0.",
        sweep_.ranks, BinaryBytes(sweep_.points.front().bucket_bytes),
        BinaryBytes(sweep_.points.back().bucket_bytes), best.step_ms.median,
        BinaryBytes(best.bucket_bytes), AsFast(answer_.equal),
        model.model_step_ms, BinaryBytes(model.bucket_bytes),
        AsFast(answer_.model_equal), sweep_.no_overlap_ms.median);
  }

  // " (7 as fast from 64 KiB to 4 MiB)".
  std::string AsFast(const EqualSizes& equal) const {
    if (equal.count == 1) return "";
    return fmt::format(" ({} as fast from {} to {})", equal.count,
                       BinaryBytes(sweep_.points[equal.from].bucket_bytes),
                       BinaryBytes(sweep_.points[equal.to].bucket_bytes));
  }

  double X(const BucketPoint& point) const {
    return x_.At(std::log2(static_cast<double>(point.bucket_bytes)));
  }

  // Every other size is named, for want of room; with its number of buckets.
  void DrawSizes() {
    svg_.AddLine(x_.Begin(), y_.Begin(), x_.End(), y_.Begin(), "axis");
    const size_t every = sweep_.points.size() > 6 ? 2 : 1;
    for (size_t i = 0; i < sweep_.points.size(); ++i) {
      const BucketPoint& p = sweep_.points[i];
      svg_.AddLine(X(p), y_.Begin(), X(p), y_.Begin() + 4, "axis");
      if (i % every != 0) continue;
      svg_.AddText(X(p), y_.Begin() + 16, BinaryBytes(p.bucket_bytes),
                   "middle");
      svg_.AddText(X(p), y_.Begin() + 30, fmt::format("{}", p.num_buckets),
                   "middle muted");
    }
    svg_.AddText(x_.End(), y_.Begin() + 44,
                 "limit of a bucket, and how many there are", "end muted");
  }

  void DrawWithoutOverlap() {
    const double y = y_.At(sweep_.no_overlap_ms.median);
    svg_.Add("line",
             {{"class", "stroke3 dotted"},
              {"x1", Px(x_.Begin())},
              {"y1", Px(y)},
              {"x2", Px(x_.End())},
              {"y2", Px(y)},
              {"data-json", path_ + ".no_overlap_ms.median"},
              {"data-value", fmt::format("{}", sweep_.no_overlap_ms.median)}},
             fmt::format("without overlap: {:.1f} ms (quartiles {:.1f} to "
                         "{:.1f})",
                         sweep_.no_overlap_ms.median, sweep_.no_overlap_ms.low,
                         sweep_.no_overlap_ms.high));
  }

  void DrawModel() {
    std::vector<std::pair<double, double>> places;
    for (const BucketPoint& p : sweep_.points) {
      places.emplace_back(X(p), y_.At(p.model_step_ms));
    }
    svg_.Add("path", {{"class", "stroke2 dashed"}, {"d", PolyLine(places)}});
    for (size_t i = 0; i < sweep_.points.size(); ++i) {
      const BucketPoint& p = sweep_.points[i];
      const bool is_best =
          i == answer_.model_best && answer_.model_equal.count == 1;
      const double half = is_best ? 5.5 : 2.5;
      svg_.Add(
          "rect",
          {{"class", is_best ? "hollow stroke2" : "fill2"},
           {"x", Px(X(p) - half)},
           {"y", Px(y_.At(p.model_step_ms) - half)},
           {"width", Px(2 * half)},
           {"height", Px(2 * half)},
           {"data-json", fmt::format("{}.points.{}.model_step_ms", path_, i)},
           {"data-value", fmt::format("{}", p.model_step_ms)}},
          fmt::format("model, {}: {:.1f} ms", BinaryBytes(p.bucket_bytes),
                      p.model_step_ms));
    }
  }

  void DrawMeasured() {
    std::vector<std::pair<double, double>> places;
    for (const BucketPoint& p : sweep_.points) {
      places.emplace_back(X(p), y_.At(p.step_ms.median));
    }
    svg_.Add("path", {{"class", "stroke1"}, {"d", PolyLine(places)}});
    for (size_t i = 0; i < sweep_.points.size(); ++i) DrawPoint(i);
  }

  void DrawPoint(size_t i) {
    const BucketPoint& p = sweep_.points[i];
    DrawBar(svg_, X(p), y_.At(p.step_ms.low), y_.At(p.step_ms.high));
    const bool is_best = i == answer_.best || IsAsFast(p);
    svg_.Add(
        "circle",
        {{"class", is_best ? "hollow stroke1" : "fill1"},
         {"cx", Px(X(p))},
         {"cy", Px(y_.At(p.step_ms.median))},
         {"r", is_best ? "5" : "3"},
         {"data-json", fmt::format("{}.points.{}.step_ms.median", path_, i)},
         {"data-value", fmt::format("{}", p.step_ms.median)}},
        fmt::format("{}: {:.1f} ms (quartiles {:.1f} to {:.1f}), {} "
                    "buckets",
                    BinaryBytes(p.bucket_bytes), p.step_ms.median,
                    p.step_ms.low, p.step_ms.high, p.num_buckets));
    if (is_best) {
      svg_.Add("circle", {{"class", "fill1"},
                          {"cx", Px(X(p))},
                          {"cy", Px(y_.At(p.step_ms.median))},
                          {"r", "2.5"}});
    }
  }

  void DrawKeys() {
    const double y = 12;
    double x = x_.Begin();
    const auto key = [&](const char* line, const char* name, double width) {
      svg_.AddLine(x, y - 4, x + 20, y - 4, line);
      svg_.AddText(x + 24, y, name);
      x += 24 + width;
    };
    svg_.Add("circle", {{"class", "fill1"},
                        {"cx", Px(x + 10)},
                        {"cy", Px(y - 4)},
                        {"r", "3"}});
    key("stroke1", "measured", 62);
    svg_.Add("rect", {{"class", "fill2"},
                      {"x", Px(x + 7.5)},
                      {"y", Px(y - 6.5)},
                      {"width", "5"},
                      {"height", "5"}});
    key("stroke2 dashed", "model", 50);
    key("stroke3 dotted", "no overlap", 66);
    svg_.Add("circle", {{"class", "hollow axis"},
                        {"cx", Px(x + 7)},
                        {"cy", Px(y - 4)},
                        {"r", "5"}});
    svg_.AddText(x + 16, y, "fastest");
  }

  const BucketSweep& sweep_;
  const BucketAnswer& answer_;
  const std::string path_;
  const Stretch stretch_;
  const Axis x_{
      std::log2(static_cast<double>(sweep_.points.front().bucket_bytes)),
      std::log2(static_cast<double>(sweep_.points.back().bucket_bytes)), 44,
      kWidth - 24};
  const Axis y_{stretch_.from, stretch_.to, kHeight - 48, 30};
  SvgWriter svg_;
};

}  // namespace

std::string BucketChart(const BucketFinding& buckets, int cores) {
  const size_t shown = SweepToShow(buckets, cores);
  const BucketSweep& sweep = buckets.sweeps[shown];
  const BucketAnswer answer = AnswerOf(sweep, buckets.model.parameters);
  return BucketPicture(sweep, answer, fmt::format("buckets.sweeps.{}", shown))
      .Draw();
}

}  // namespace trainsys
