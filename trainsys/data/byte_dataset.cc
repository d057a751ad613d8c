#include "trainsys/data/byte_dataset.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "collectives/errors.h"
#include "trainsys/random/splitmix64.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

class FileDescriptor {
 public:
  // Not blocking: opening a pipe would otherwise wait for its writer.
  explicit FileDescriptor(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void ThrowUnreadable(const std::string& path, int error) {
  throw InvalidArgument(fmt::format(
      "data: cannot read '{}': {}; give a file that exists and is readable",
      path, std::strerror(error)));
}

size_t RegularFileSize(const FileDescriptor& file, const std::string& path) {
  struct stat status;
  if (file.get() < 0 || fstat(file.get(), &status) != 0) {
    ThrowUnreadable(path, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw InvalidArgument(fmt::format(
        "data: '{}' is {}, not a regular file; give a file of text", path,
        S_ISDIR(status.st_mode) ? "a directory" : "a pipe or device"));
  }
  return static_cast<size_t>(status.st_size);
}

std::string ReadFile(const std::string& path) {
  const FileDescriptor file(path);
  std::string bytes(RegularFileSize(file, path), '\0');
  for (size_t have = 0; have < bytes.size();) {
    const ssize_t got =
        read(file.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) ThrowUnreadable(path, errno);
    if (got == 0) bytes.resize(have);  // the file became shorter meanwhile
    have += static_cast<size_t>(got);
  }
  return bytes;
}

void CheckNotNegative(const char* name, int64_t value) {
  if (value >= 0) return;
  throw InvalidArgument(
      fmt::format("data: {} is {}; give 0 or more", name, value));
}

}  // namespace

ByteDataset ByteDataset::FromFile(const std::string& path, int64_t context) {
  return ByteDataset(ReadFile(path), context, "'" + path + "'");
}

ByteDataset ByteDataset::FromBytes(std::string bytes, int64_t context) {
  return ByteDataset(std::move(bytes), context, "the text");
}

ByteDataset::ByteDataset(std::string bytes, int64_t context,
                         const std::string& source)
    : bytes_(std::make_shared<const std::string>(std::move(bytes))),
      context_(context) {
  if (context < 1) {
    throw InvalidArgument(
        fmt::format("data: context is {}; give at least 1", context));
  }
  if (bytes_->empty()) {
    throw InvalidArgument(
        fmt::format("data: {} is empty; give at least {} bytes (context + 1)",
                    source, context + 1));
  }
  if (num_bytes() <= context) {
    throw InvalidArgument(
        fmt::format("data: {} has {} bytes; give at least {} (context + 1)",
                    source, num_bytes(), context + 1));
  }
}

Batch ByteDataset::Rows(uint64_t seed, int64_t step, int64_t first_row,
                        int64_t num_rows) const {
  CheckNotNegative("step", step);
  CheckNotNegative("first_row", first_row);
  CheckNotNegative("num_rows", num_rows);
  Batch batch{at::empty({num_rows, context_}, at::kLong),
              at::empty({num_rows, context_}, at::kLong)};
  int64_t* tokens = batch.tokens.data_ptr<int64_t>();
  int64_t* targets = batch.targets.data_ptr<int64_t>();
  const uint64_t of_step = SplitMix64::Mix(seed, static_cast<uint64_t>(step));
  const auto num_windows = static_cast<uint64_t>(num_bytes() - context_);
  for (int64_t row = first_row; row < first_row + num_rows; ++row) {
    const uint64_t start =
        SplitMix64::Mix(of_step, static_cast<uint64_t>(row)) % num_windows;
    for (int64_t t = 0; t < context_; ++t) {
      *tokens++ = static_cast<unsigned char>((*bytes_)[start + t]);
      *targets++ = static_cast<unsigned char>((*bytes_)[start + t + 1]);
    }
  }
  return batch;
}

}  // namespace trainsys
