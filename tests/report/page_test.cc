#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/report/sample_findings.h"
#include "trainsys/report/findings_json.h"
#include "trainsys/report/findings_text.h"
#include "trainsys/report/page_html.h"
#include "trainsys/report/page_html_charts.h"
#include "trainsys/report/page_markdown.h"
#include "trainsys/svg/axis.h"

namespace trainsys {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Html(const Findings& findings) {
  return AsHtml(findings, AsJson(findings));
}

std::string Markdown(const Findings& findings) {
  return AsMarkdown(findings, AsJson(findings));
}

// The first group of every match.
std::vector<std::string> All(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end;
       ++it) {
    found.push_back((*it)[1]);
  }
  return found;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(AsHtmlTest, ThePageNeedsNothingFromElsewhereAndRunsNothing) {
  const std::string html = Html(SampleFindings());
  EXPECT_THAT(html, AllOf(Not(HasSubstr("http")), Not(HasSubstr("<script")),
                          Not(HasSubstr("url(")), Not(HasSubstr("@import")),
                          Not(HasSubstr("<link")), Not(HasSubstr("<img"))));
}

TEST(AsHtmlTest, EveryElementThatOpensCloses) {
  const std::string html = Html(SampleFindings());
  for (const char* tag :
       {"html",  "head",    "body",  "main",  "h1", "h2",    "p",
        "table", "caption", "thead", "tbody", "tr", "th",    "td",
        "data",  "span",    "div",   "svg",   "g",  "title", "desc",
        "text",  "details", "code",  "style"}) {
    const std::string open = "<" + std::string(tag);
    EXPECT_EQ(Count(html, open + ">") + Count(html, open + " "),
              Count(html, "</" + std::string(tag) + ">"))
        << tag;
  }
}

TEST(AsHtmlTest, PicturesHaveTextAlternativesUnderIdsOfTheirOwn) {
  const std::string html = Html(SampleFindings());
  EXPECT_EQ(Count(html, "<svg "), 3u);
  EXPECT_EQ(Count(html, "role=\"img\""), 3u);
  const std::vector<std::string> ids = All(html, " id=\"([^\"]*)\"");
  EXPECT_EQ(ids.size(), 6u);
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  for (const std::string& both : All(html, "aria-labelledby=\"([^\"]*)\"")) {
    const size_t space = both.find(' ');
    EXPECT_THAT(ids, AllOf(testing::Contains(both.substr(0, space)),
                           testing::Contains(both.substr(space + 1))));
  }
}

TEST(AsHtmlTest, EveryTableHasACaptionAndEveryHeadItsScope) {
  const std::string html = Html(SampleFindings());
  EXPECT_EQ(Count(html, "<table"), 5u);
  EXPECT_EQ(Count(html, "<caption>"), 5u);
  EXPECT_EQ(Count(html, "<th "), Count(html, "<th scope="));
  EXPECT_EQ(Count(html, "<th>"), 0u);
}

TEST(AsHtmlTest, WhatIsMarkupInTheHostsNameIsText) {
  EXPECT_THAT(Html(SampleFindings()),
              HasSubstr("a processor of 2 cores &lt;&amp;&gt;"));
}

TEST(AsHtmlTest, AFigureHasItsValueAndPlaceBesideIt) {
  EXPECT_THAT(
      Html(SampleFindings()),
      HasSubstr("<td><data value=\"15629576\" data-json=\"memory.cases.15."
                "ledger_bytes.after_forward.total\" data-unit=\"1\">15,629,576"
                "</data></td>"));
}

TEST(AsHtmlTest, ADifferenceIsMarkedByAWord) {
  Findings findings = SampleFindings();
  EXPECT_THAT(Html(findings), Not(HasSubstr("DIFFERS")));
  findings.memory.cases[0]
      .ledger[StepPoint::kAfterForward][MemoryCategory::kInput] += 8;
  findings.memory.cases[0].difference_bytes = 8;
  EXPECT_THAT(Html(findings), HasSubstr("DIFFERS"));
}

TEST(AsMarkdownTest, SentencesAndTablesAreThePages) {
  const Findings findings = SampleFindings();
  const auto report = AsJson(findings);
  const std::string markdown = Markdown(findings);
  EXPECT_TRUE(markdown.starts_with(
      "# " + Plain(Headline(findings, Figures(report))) + "\n"));
  EXPECT_THAT(
      markdown,
      AllOf(HasSubstr("| gradients, ZeRO-2 | 4 P / N = 4 × 918,656 / 4 | "
                      "918,656 | 918,656 | 0 |\n"),
            HasSubstr("| what | formula | by formula | by ledger | difference "
                      "|\n|:--|--:|--:|--:|--:|\n"),
            HasSubstr("The charts are in report.html."),
            HasSubstr("    bazel run //tools:report -- --out /tmp/report\n")));
  for (const Sentence& s : RecomputeSentences(findings, Figures(report))) {
    EXPECT_THAT(markdown, HasSubstr(Plain(s)));
  }
}

TEST(AsMarkdownTest, WhatIsMarkupInTheHostsNameIsText) {
  Findings findings = SampleFindings();
  findings.conditions.host = "a_b|c*<d>\n";
  EXPECT_THAT(Markdown(findings), HasSubstr("a\\_b\\|c\\*\\<d\\> , "));
}

// ----------------------------------------------------------------- charts

struct Point {
  double x, y, value;
};

// Circles with a place in the report that begins so.
std::vector<Point> Points(const std::string& svg, const std::string& path) {
  const std::regex regex(
      "cx=\"([0-9.]+)\" cy=\"([0-9.]+)\" r=\"[0-9.]+\" data-json=\"" + path +
      "[^\"]*\" data-value=\"([^\"]+)\"");
  std::vector<Point> points;
  for (std::sregex_iterator it(svg.begin(), svg.end(), regex), end; it != end;
       ++it) {
    points.push_back(
        {std::stod((*it)[1]), std::stod((*it)[2]), std::stod((*it)[3])});
  }
  return points;
}

// Where the axis names that time.
double TickY(const std::string& svg, const std::string& ms) {
  const auto y = All(
      svg, ("y=\"([0-9.]+)\" class=\"end muted\">" + ms + "</text>").c_str());
  return y.size() == 1 ? std::stod(y[0]) : -1;
}

TEST(BucketChartTest, SizesAreEvenlyApartAndTimesLieOnTheAxis) {
  const std::string svg = BucketChart(SampleFindings().buckets, 2);
  const std::vector<Point> p = Points(svg, "buckets.sweeps.0.points");
  ASSERT_EQ(p.size(), 11u);
  const double y240 = TickY(svg, "240"), y260 = TickY(svg, "260");
  ASSERT_LT(y260, y240);
  EXPECT_GT(p[1].x - p[0].x, 20);
  for (size_t i = 0; i < p.size(); ++i) {
    EXPECT_NEAR(p[i].x, p[0].x + (p[10].x - p[0].x) * i / 10, 0.11);
    // A tick's text stands 4 pixels below its line.
    EXPECT_NEAR(p[i].y + 4, y240 + (p[i].value - 240) / 20 * (y260 - y240),
                0.2);
  }
  EXPECT_THAT(svg, AllOf(HasSubstr(">16 KiB<"), HasSubstr(">16 MiB<"),
                         HasSubstr("buckets.sweeps.0.no_overlap_ms.median"),
                         HasSubstr("1 MiB: 246.4 ms (quartiles 244.9 to "
                                   "248.9), 20 buckets")));
}

// A size that is as fast is marked as the best is; of a tie of the model none.
TEST(BucketChartTest, OneSizeIsMarkedOnlyWhereNoOtherIsAsGood) {
  BucketFinding buckets = SampleFindings().buckets;
  std::string svg = BucketChart(buckets, 2);
  EXPECT_EQ(Count(svg, "class=\"hollow stroke1\""), 4u);
  EXPECT_EQ(Count(svg, "class=\"hollow stroke2\""), 0u);
  EXPECT_THAT(svg, HasSubstr("with 1 MiB (4 as fast from 256 KiB to 2 MiB)"));
  buckets.sweeps[0].points[6].model_step_ms = 200;
  for (BucketPoint& p : buckets.sweeps[0].points) p.over_best_percent.low = 1;
  svg = BucketChart(buckets, 2);
  EXPECT_EQ(Count(svg, "class=\"hollow stroke1\""), 1u);
  EXPECT_EQ(Count(svg, "class=\"hollow stroke2\""), 1u);
  EXPECT_THAT(svg, Not(HasSubstr("as fast")));
}

TEST(BucketChartTest, ItShowsTheMostRanksThatHaveACoreEach) {
  EXPECT_THAT(BucketChart(SampleFindings().buckets, 64),
              HasSubstr("<desc id=\"buckets-desc\">4 ranks"));
}

TEST(MemoryChartTest, ThePeakIsMarkedAndPhasesAreNamed) {
  const std::string svg = MemoryChart(SampleFindings().memory);
  const std::vector<Point> peaks = Points(svg, "memory.timelines");
  ASSERT_EQ(peaks.size(), 2u);
  EXPECT_GT(peaks[0].value, peaks[1].value);
  EXPECT_LT(peaks[0].y, peaks[1].y);
  EXPECT_EQ(Count(svg, ">backward<"), 2u);
  EXPECT_EQ(Count(svg, "class=\"area "), 12u);
}

TEST(RecomputeChartTest, EveryPolicyIsAPointWithItsName) {
  const std::string svg = RecomputeChart(SampleFindings().recompute);
  const std::vector<Point> p = Points(svg, "recompute.costs");
  ASSERT_EQ(p.size(), 5u);
  EXPECT_GT(p[0].x, p[4].x);
  EXPECT_GT(p[0].y, p[4].y);
  for (const char* name : {">none<", ">selective<", ">every-4<", ">every-2<",
                           ">full<", ">one more forward, 33.3 %<"}) {
    EXPECT_THAT(svg, HasSubstr(name));
  }
}

// Two policies at the same peak, one above the other's bar.
TEST(RecomputeChartTest, NamesLieUnderPointsAndBesideBars) {
  RecomputeFinding recompute = SampleFindings().recompute;
  recompute.costs[1].peak_bytes = recompute.costs[2].peak_bytes;
  recompute.costs[1].extra_percent = {10, 14, 30};
  recompute.costs[2].extra_percent = {20, 21, 22};
  const std::string svg = RecomputeChart(recompute);
  const size_t last_name = svg.rfind("halo\">");
  EXPECT_LT(last_name, svg.find("recompute.costs"));
  const double x = Points(svg, "recompute.costs.1")[0].x;
  const std::regex regex(
      "<text x=\"([0-9.]+)\" y=\"[0-9.]+\" class=\"(end )?halo\">"
      "(selective|every-4)<");
  int names = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), regex), end; it != end;
       ++it, ++names) {
    EXPECT_GE(std::abs(std::stod((*it)[1]) - x), 4) << (*it)[3];
  }
  EXPECT_EQ(names, 2);
}

TEST(RecomputeChartTest, NamesDoNotCoverEachOther) {
  const std::string svg = RecomputeChart(SampleFindings().recompute);
  const std::regex regex(
      "<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" class=\"(end "
      ")?halo\">([a-z0-9-]+)<");
  std::vector<Box> names;
  for (std::sregex_iterator it(svg.begin(), svg.end(), regex), end; it != end;
       ++it) {
    const double width = 6.0 * (*it)[4].length();
    const double left = std::stod((*it)[1]) - ((*it)[3].matched ? width : 0);
    const Box name{left, std::stod((*it)[2]), width, 10};
    for (const Box& other : names) EXPECT_FALSE(name.Meets(other)) << (*it)[4];
    names.push_back(name);
  }
  EXPECT_EQ(names.size(), 5u);
}

// What was not sampled is not drawn, and nothing is divided by it.
TEST(ChartTest, FindingsWithoutSamplesOrTimesAreStillPictures) {
  Findings findings = SampleFindings();
  for (MemoryTimeline& t : findings.memory.timelines) {
    t.samples.clear();
    t.phases.clear();
  }
  findings.recompute.costs.resize(1);
  for (BucketSweep& sweep : findings.buckets.sweeps) {
    sweep.points.resize(1);
    sweep.no_overlap_ms = sweep.points[0].step_ms = {};
    sweep.points[0].model_step_ms = 0;
  }
  for (const std::string& svg :
       {MemoryChart(findings.memory), BucketChart(findings.buckets, 2),
        RecomputeChart(findings.recompute)}) {
    EXPECT_THAT(svg, AllOf(HasSubstr("</svg>"), Not(HasSubstr("nan")),
                           Not(HasSubstr("inf\""))));
  }
}

}  // namespace
}  // namespace trainsys
