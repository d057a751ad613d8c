// What moving data costs: a described link, or one fitted to what was measured.
// Pure.
#pragma once

#include <cstdint>
#include <span>

namespace trainsys {

// One collective of n bytes takes latency_us + n / bytes_per_us: the alpha-beta
// model (Hockney 1994), with what the operation does folded into both.
struct Link {
  double latency_us = 0;
  double bytes_per_us = 0;  // = MB/s

  double TimeUs(int64_t bytes) const;
};

// One measured collective.
struct LinkSample {
  int64_t bytes = 0;  // of the buffer
  double us = 0;      // median
};

// The link whose times are nearest the samples', relative to each: small
// messages count as much as large ones. Neither figure is negative; the bytes
// are infinite where large messages take no longer.
// Errors: InvalidArgument for fewer than two sizes, or times that are not
// positive.
Link FitLink(std::span<const LinkSample> samples);

// The largest |fitted / measured - 1|.
double WorstFitError(const Link& link, std::span<const LinkSample> samples);

}  // namespace trainsys
