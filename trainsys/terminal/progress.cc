#include "trainsys/terminal/progress.h"

#include <fmt/core.h>

#include <algorithm>

#include "collectives/record/clock.h"
#include "trainsys/terminal/terminal.h"

namespace trainsys {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;
constexpr char kToBeginAndErase[] = "\r\033[K";

std::string TimeText(double seconds) {
  constexpr double kMinute = 60, kHour = 3600;
  if (seconds < 2 * kMinute) return fmt::format("{:.0f} s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.0f} min", seconds / kMinute);
  return fmt::format("{:.1f} h", seconds / kHour);
}

}  // namespace

Progress::Progress(std::FILE* stream, int64_t quiet_ns)
    : stream_(stream),
      is_terminal_(IsTerminal(stream)),
      began_ns_(collectives::NowNs()),
      quiet_ns_(quiet_ns),
      seen_ns_(began_ns_) {}

Progress::~Progress() { Clear(); }

void Progress::Show(const std::string& what, int64_t done, int64_t all,
                    const std::string& detail) {
  const int64_t now_ns = collectives::NowNs();
  const bool is_new = what != what_;
  if (is_new) {
    what_ = what;
    // Told of before its first part, or after it.
    what_began_ns_ = done == 0 ? now_ns : seen_ns_;
    shown_tenth_ = -1;
  }
  seen_ns_ = now_ns;
  if (now_ns - began_ns_ < quiet_ns_) return;
  if (is_terminal_) {
    if (is_drawn_ && !is_new && now_ns - shown_ns_ < kRedrawNs) return;
    Draw(Line(done, all, detail));
    shown_ns_ = now_ns;
  } else {
    const int64_t tenth = all > 0 ? 10 * done / all : 0;
    if (tenth == shown_tenth_) return;
    shown_tenth_ = tenth;
    Put(Line(done, all, detail) + "\n", stream_);
  }
}

void Progress::Clear() {
  if (!is_drawn_) return;
  Put(kToBeginAndErase, stream_);
  is_drawn_ = false;
}

// The last column stays free: a character there may break the line.
void Progress::Draw(const std::string& line) {
  const size_t columns = WidthOf(stream_) - 1;
  Put(kToBeginAndErase + CutToColumns(line, columns), stream_);
  is_drawn_ = true;
}

std::string Progress::Line(int64_t done, int64_t all,
                           const std::string& detail) const {
  std::string line = fmt::format("{} {}/{}", what_, done, all);
  if (!detail.empty()) line += " | " + detail;
  if (done <= 0) return line;
  const double each_s = static_cast<double>(seen_ns_ - what_began_ns_) / 1e9 /
                        static_cast<double>(done);
  const double left_s =
      each_s * static_cast<double>(std::max<int64_t>(all - done, 0));
  return line + " | " + TimeText(left_s) + " left";
}

}  // namespace trainsys
