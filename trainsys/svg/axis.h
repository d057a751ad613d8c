// From figures to places on a chart. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainsys {

// A stretch of pixels for a stretch of figures.
class Axis {
 public:
  // Evenly, `from` at pixel `begin` and `to` at pixel `end`.
  Axis(double from, double to, double begin, double end)
      : from_(from), to_(to), begin_(begin), end_(end) {}

  double From() const { return from_; }
  double To() const { return to_; }
  double Begin() const { return begin_; }
  double End() const { return end_; }
  // Result: inside, also for figures outside.
  double At(double figure) const;

 private:
  double from_, to_, begin_, end_;
};

// Round figures from `from` on up to `to`, about `count` of them, 1, 2 or 5
// times a power of ten apart. Errors: none; of an empty stretch the one figure.
std::vector<double> RoundTicks(double from, double to, int count);

// The stretch of RoundTicks that holds from and to, with a little room.
struct Stretch {
  double from = 0, to = 0;
};
Stretch RoundStretch(double from, double to, int count);

// A label's place: the first of `tries` that lies free of all in `taken`, else
// the one that covers least of them; `taken` then has it too.
struct Box {
  double left = 0, top = 0, width = 0, height = 0;

  bool Meets(const Box& other) const;
};
Box PlaceFree(const std::vector<Box>& tries, std::vector<Box>& taken);

// Bytes in the largest binary unit that divides them: "16 KiB", "1 MiB",
// "100 bytes".
std::string BinaryBytes(int64_t bytes);

}  // namespace trainsys
