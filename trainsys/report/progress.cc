#include "trainsys/report/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "collectives/record/clock.h"

namespace trainsys {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;

bool IsTerminal(std::FILE* stream) {
  const char* term = std::getenv("TERM");
  return isatty(fileno(stream)) && term && std::strcmp(term, "dumb") != 0;
}

size_t WidthOf(std::FILE* stream) {
  winsize size{};
  const bool is_known =
      ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(int64_t num_steps, int64_t tokens_per_step,
                   std::FILE* stream)
    : num_steps_(num_steps),
      tokens_per_step_(tokens_per_step),
      stream_(stream),
      is_terminal_(IsTerminal(stream)),
      began_ns_(collectives::NowNs()) {}

Progress::~Progress() {
  if (is_terminal_ && shown_ns_ != 0) std::fputc('\n', stream_);
}

void Progress::Show(int64_t step, double loss) {
  const int64_t now_ns = collectives::NowNs();
  const bool is_last = step + 1 == num_steps_;
  const double seconds = static_cast<double>(now_ns - began_ns_) / 1e9;
  if (is_terminal_) {
    if (!is_last && now_ns - shown_ns_ < kRedrawNs) return;
    const size_t width = WidthOf(stream_) - 1;
    std::string line = Line(step, loss, seconds).substr(0, width);
    line.resize(width, ' ');
    fmt::print(stream_, "\r{}", line);
    shown_ns_ = now_ns;
  } else {
    const int64_t every = std::max<int64_t>(1, num_steps_ / 10);
    if (!is_last && step % every != 0) return;
    fmt::print(stream_, "{}\n", Line(step, loss, seconds));
  }
  std::fflush(stream_);
}

std::string Progress::Line(int64_t step, double loss, double seconds) const {
  const auto done = static_cast<double>(step + 1);
  const double each = seconds / done;
  const double left = each * static_cast<double>(num_steps_ - step - 1);
  return fmt::format(
      "step {}/{} | loss {:.4f} | {:.0f} tokens/s | {:.0f} s left", step + 1,
      num_steps_, loss, static_cast<double>(tokens_per_step_) / each, left);
}

}  // namespace trainsys
