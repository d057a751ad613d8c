#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

namespace trainsys {

// Letters: T positions (the context), R rows.
struct Batch {
  at::Tensor tokens;   // [R, T] int64 in [0, 256)
  at::Tensor targets;  // [R, T] int64, each the token after its neighbour
};

// A text as training data: bytes are tokens, rows are windows of T + 1 bytes.
//
// A step's global batch is a list of rows, row g a pure function of (seed,
// step, g). With R rows a rank, rank r takes rows [r * R, (r + 1) * R): N ranks
// together see what one rank with N * R rows sees.
//
// Threads: any thread; copies share the bytes.
// Errors: InvalidArgument where the text has fewer than context + 1 bytes,
// context is below 1, or the file is missing, unreadable or no regular file.
class ByteDataset {
 public:
  // Memory: the file's bytes once.
  static ByteDataset FromFile(const std::string& path, int64_t context);
  static ByteDataset FromBytes(std::string bytes, int64_t context);

  // Rows first_row ... first_row + num_rows - 1 of a step's global batch.
  // Errors: InvalidArgument for negative numbers.
  Batch Rows(uint64_t seed, int64_t step, int64_t first_row,
             int64_t num_rows) const;

  int64_t num_bytes() const { return static_cast<int64_t>(bytes_->size()); }
  int64_t context() const { return context_; }

 private:
  // `source` names the text in messages.
  ByteDataset(std::string bytes, int64_t context, const std::string& source);

  std::shared_ptr<const std::string> bytes_;  // read only, so freely shared
  int64_t context_;
};

}  // namespace trainsys
