// One case, as something to call again and again.
#pragma once

#include <functional>
#include <vector>

#include "collectives/communicator.h"
#include "tools/collective_bench/cases.h"

namespace trainsys {

// In place on `data`, which has what.bytes; sums where it reduces.
// Asynchronous: posted and waited for at once, with nothing else to do.
// Lifetime: `comm` and `data` outlive it.
std::function<void()> CallOf(collectives::Communicator& comm, const Case& what,
                             void* data, bool is_async);

// This rank's share of the least memory traffic that the case allows, with
// nobody to wait for: every rank's input read once, every rank's output written
// once, a range of 1/N of the elements by each rank. A broadcast's root is rank
// 0. bf16 is summed as integers of twice its size: the traffic is the same.
//
// `buffers`: of all ranks, in rank order. Not for barriers.
std::function<void()> FloorOf(const Case& what, int rank,
                              const std::vector<void*>& buffers);

}  // namespace trainsys
