#include "collectives/gather.h"

namespace collectives {

std::vector<std::vector<std::byte>> GatherBytes(Communicator& comm,
                                                std::span<const std::byte> mine,
                                                std::string_view label) {
  const std::vector<int64_t> counts =
      Gather(comm, static_cast<int64_t>(mine.size()), label);
  std::vector<std::byte> all(static_cast<size_t>(SumOf(counts)));
  comm.AllGather({mine.data(), DType::kU8, static_cast<int64_t>(mine.size())},
                 {all.data(), DType::kU8, static_cast<int64_t>(all.size())},
                 counts, label);
  std::vector<std::vector<std::byte>> parts;
  auto at = all.cbegin();
  for (int64_t count : counts) {
    parts.emplace_back(at, at + count);
    at += count;
  }
  return parts;
}

std::vector<std::string> GatherText(Communicator& comm, std::string_view mine,
                                    std::string_view label) {
  std::vector<std::string> texts;
  for (const auto& part :
       GatherBytes(comm, std::as_bytes(std::span(mine)), label)) {
    texts.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return texts;
}

}  // namespace collectives
