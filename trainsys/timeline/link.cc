#include "trainsys/timeline/link.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

void Check(std::span<const LinkSample> samples) {
  const auto is_other = [&samples](const LinkSample& sample) {
    return sample.bytes != samples[0].bytes;
  };
  if (std::none_of(samples.begin(), samples.end(), is_other)) {
    throw InvalidArgument(
        "FitLink: samples of one size or none, expected two sizes at least");
  }
  for (const LinkSample& sample : samples) {
    if (sample.bytes >= 0 && sample.us > 0 && std::isfinite(sample.us)) {
      continue;
    }
    throw InvalidArgument(
        "FitLink: " + std::to_string(sample.bytes) + " bytes in " +
        std::to_string(sample.us) +
        " us, expected 0 bytes or more and a finite time above 0");
  }
}

// us = latency + bytes * us_per_byte.
struct Line {
  double latency_us = 0;
  double us_per_byte = 0;

  double Us(double bytes) const { return latency_us + bytes * us_per_byte; }
};

// The sums of the normal equations, each sample weighed by 1 / us^2. Of the
// residuals divided by us, that is, in which a sample's own time is 1.
struct Sums {
  double ones = 0;           // sum of w
  double bytes = 0;          // w n
  double bytes_squared = 0;  // w n^2
  double us = 0;             // w t
  double bytes_us = 0;       // w n t

  explicit Sums(std::span<const LinkSample> samples) {
    for (const LinkSample& sample : samples) {
      const double w = 1 / (sample.us * sample.us);
      const auto n = static_cast<double>(sample.bytes);
      ones += w;
      bytes += w * n;
      bytes_squared += w * n * n;
      us += w * sample.us;
      bytes_us += w * n * sample.us;
    }
  }

  Line Best() const {
    const double determinant = ones * bytes_squared - bytes * bytes;
    return {(us * bytes_squared - bytes * bytes_us) / determinant,
            (ones * bytes_us - bytes * us) / determinant};
  }
  Line BestWithoutLatency() const { return {0, bytes_us / bytes_squared}; }
  Line BestWithoutBytes() const { return {us / ones, 0}; }
};

// The error is convex: where the best line has a negative figure, the best of
// those allowed has a zero there.
Line BestAllowed(const Sums& sums) {
  const Line best = sums.Best();
  if (best.latency_us < 0) return sums.BestWithoutLatency();
  if (best.us_per_byte <= 0) return sums.BestWithoutBytes();
  return best;
}

}  // namespace

double Link::TimeUs(int64_t bytes) const {
  return latency_us + static_cast<double>(bytes) / bytes_per_us;
}

Link FitLink(std::span<const LinkSample> samples) {
  Check(samples);
  const Line line = BestAllowed(Sums(samples));
  if (!std::isfinite(line.latency_us) || !std::isfinite(line.us_per_byte)) {
    throw InvalidArgument(
        "FitLink: times too far apart, expected a line through them");
  }
  return {line.latency_us, 1 / line.us_per_byte};
}

double WorstFitError(const Link& link, std::span<const LinkSample> samples) {
  double worst = 0;
  for (const LinkSample& sample : samples) {
    worst =
        std::max(worst, std::abs(link.TimeUs(sample.bytes) / sample.us - 1));
  }
  return worst;
}

}  // namespace trainsys
