#include "tools/collective_bench/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "collectives/record/clock.h"

namespace trainsys {
namespace {

constexpr int64_t kQuietNs = 2'000'000'000;
constexpr int64_t kRedrawNs = 100'000'000;
constexpr size_t kColumns = 79;

}  // namespace

BenchProgress::BenchProgress()
    : is_terminal_(isatty(STDERR_FILENO) != 0),
      began_ns_(collectives::NowNs()) {}

void BenchProgress::Show(const std::string& part, size_t done, size_t all) {
  const int64_t now_ns = collectives::NowNs();
  if (now_ns - began_ns_ < kQuietNs) return;
  if (!is_terminal_) {
    if (part == shown_part_) return;
    fmt::print(stderr, "{}: {} cases\n", part, all);
  } else if (now_ns - shown_ns_ >= kRedrawNs || part != shown_part_) {
    std::string line = fmt::format("{}: case {} of {}", part, done + 1, all);
    line.resize(kColumns, ' ');
    fmt::print(stderr, "\r{}", line);
    shown_ns_ = now_ns;
    is_drawn_ = true;
  }
  shown_part_ = part;
  std::fflush(stderr);
}

void BenchProgress::Clear() {
  if (!is_drawn_) return;
  fmt::print(stderr, "\r{}\r", std::string(kColumns, ' '));
  std::fflush(stderr);
  is_drawn_ = false;
}

}  // namespace trainsys
