// Small values of every rank, on every rank.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "collectives/communicator.h"

namespace collectives {

// Collectives. Result: what each rank gave, in rank order; lengths may differ.
// Cost: two all-gathers.
std::vector<std::vector<std::byte>> GatherBytes(Communicator& comm,
                                                std::span<const std::byte> mine,
                                                std::string_view label);
std::vector<std::string> GatherText(Communicator& comm, std::string_view mine,
                                    std::string_view label);

// Cost: one all-gather.
template <typename T>
std::vector<T> Gather(Communicator& comm, const T& mine,
                      std::string_view label) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto ranks = static_cast<size_t>(comm.ranks());
  const auto bytes = static_cast<int64_t>(sizeof(T));
  std::vector<T> all(ranks);
  comm.AllGather({&mine, DType::kU8, bytes},
                 {all.data(), DType::kU8, bytes * comm.ranks()},
                 std::vector<int64_t>(ranks, bytes), label);
  return all;
}

}  // namespace collectives
