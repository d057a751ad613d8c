#include "trainsys/launch/line_forwarder.h"

#include <algorithm>

namespace trainsys {

std::string LineForwarder::Feed(std::string_view bytes) {
  std::string lines;
  while (!bytes.empty()) {
    const size_t length = std::min(bytes.find('\n'), bytes.size());
    const size_t taken = std::min(length, kMaxLineBytes - partial_.size());
    partial_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (bytes.empty()) break;
    if (bytes.front() == '\n') bytes.remove_prefix(1);
    EndLine(lines);  // its end is here, or it is full and goes on
  }
  return lines;
}

std::string LineForwarder::Finish() {
  std::string lines;
  if (!partial_.empty()) EndLine(lines);
  return lines;
}

void LineForwarder::EndLine(std::string& lines) {
  lines.append(prefix_).append(partial_).push_back('\n');
  partial_.clear();
}

}  // namespace trainsys
