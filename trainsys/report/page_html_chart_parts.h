// What the page's charts share. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainsys/svg/axis.h"
#include "trainsys/svg/svg.h"

namespace trainsys {

inline constexpr double kMiB = 1 << 20;

// "15.3 MiB".
std::string Mibi(double bytes);

// A path through places, x and y.
std::string PolyLine(const std::vector<std::pair<double, double>>& places);

// Ticks of the vertical axis, with what they count.
void DrawScale(SvgWriter& svg, const Axis& x, const Axis& y, int count,
               const std::string& unit);

// An error bar.
void DrawBar(SvgWriter& svg, double x, double low, double high);

}  // namespace trainsys
