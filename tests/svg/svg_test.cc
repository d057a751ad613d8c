#include "trainsys/svg/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace trainsys {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(EscapeMarkupTest, WhatMarkupTakesForItsOwnIsWrittenAsEntities) {
  EXPECT_EQ(EscapeMarkup("a<b> & \"c\"\n\x01é"),
            "a&lt;b&gt; &amp; &quot;c&quot;  é");
}

TEST(SvgWriterTest, APictureHasItsRoleTitleAndDescriptionUnderIdsOfItsOwn) {
  SvgWriter svg({"times", "A < B", "Two bars.", 200, 100});
  svg.Add("rect",
          {{"class", "fill1"}, {"width", Px(20.04)}, {"data-name", "a\"<"}},
          "first & last");
  svg.AddText(5, 12.25, "<b>", "end");
  EXPECT_EQ(svg.Finish(),
            "<svg class=\"picture\" viewBox=\"0 0 200 100\" width=\"17.54rem\" "
            "height=\"8.77rem\" role=\"img\" "
            "aria-labelledby=\"times-title times-desc\">\n"
            "<title id=\"times-title\">A &lt; B</title>\n"
            "<desc id=\"times-desc\">Two bars.</desc>\n"
            "<rect class=\"fill1\" width=\"20\" "
            "data-name=\"a&quot;&lt;\"><title>first &amp; last</title>"
            "</rect>\n"
            "<text x=\"5\" y=\"12.3\" class=\"end\">&lt;b&gt;</text>\n"
            "</svg>\n");
}

TEST(SvgWriterTest, OnlyAFileHasANameSpaceAndStylesOfItsOwn) {
  const std::string inner = SvgWriter({"a", "A", "B", 10, 10}).Finish();
  EXPECT_THAT(inner, Not(HasSubstr("http")));
  EXPECT_THAT(inner, Not(HasSubstr("<style>")));
  const std::string file =
      SvgWriter({"a", "A", "B", 10, 10, SvgPlace::kFile}).Finish();
  EXPECT_THAT(file, HasSubstr("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(file, HasSubstr("prefers-color-scheme: dark"));
}

TEST(PxTest, LengthsAreTenthsWithoutANegativeZero) {
  EXPECT_EQ(Px(12), "12");
  EXPECT_EQ(Px(12.46), "12.5");
  EXPECT_EQ(Px(-0.01), "0");
}

}  // namespace
}  // namespace trainsys
