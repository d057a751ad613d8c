// By how much the loss is scaled, so that small gradients in 16 bit do not
// vanish. Pure: who scales, looks for what is not finite and skips steps is
// elsewhere.
#pragma once

#include <cstdint>

namespace trainsys {

struct LossScalerOptions {
  double initial_scale = 65536;
  double growth = 2;
  double backoff = 0.5;
  int64_t growth_interval = 2000;
};

// Errors: InvalidArgument unless initial_scale is a normal f32 number above 0,
// growth is finite and above 1, backoff lies in (0, 1), and growth_interval is
// at least 1.
void Validate(const LossScalerOptions& options);

// The scale shrinks by `backoff` at every step whose gradients are not finite,
// which is then to be skipped, and grows by `growth` after growth_interval
// finite ones in a row. It stays a normal f32 number: what would leave that
// range changes nothing.
// Threads: one at a time. Ranks that are told alike scale alike.
// Source: torch.cuda.amp.GradScaler's rule, but for the lower bound: that one's
//   scale may become 0.
class LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& options = {});

  double scale() const { return scale_; }
  // After each step. is_finite: all gradients of all ranks were.
  void Update(bool is_finite);

 private:
  LossScalerOptions options_;
  double scale_;
  int64_t num_finite_ = 0;  // steps since the scale changed, or would have
};

}  // namespace trainsys
