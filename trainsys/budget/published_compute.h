// Published FLOP counts. Pure.
#pragma once

namespace trainsys {

// "Transformer Math 101", after Kaplan et al. 2020: 6PD, a third of it in
// forward.
double TrainingFlops(double parameters, double tokens);

// Chowdhery et al. 2022 (PaLM), appendix B: FLOPs of one token,
// 6N + 12 L h s.
struct TokenFlops {
  double parameters = 0;
  double layers = 0;
  double h = 0;
  double s = 0;

  double Total() const { return 6 * parameters + 12 * layers * h * s; }
};

// Model FLOPs utilization, 0 to 1.
double Mfu(const TokenFlops& token, double tokens_per_s, double peak_flops);

// FLOPs with full recomputation against without: (2 + 2 + 4)/(2 + 4).
double FullRecomputeFlopRatio();

// With selective recomputation: 1 + s/(6h).
// Source: Korthikanti et al. 2022, arXiv 2205.05198, section 5.
double SelectiveRecomputeFlopRatio(double s, double h);

}  // namespace trainsys
