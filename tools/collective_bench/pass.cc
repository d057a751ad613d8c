#include "tools/collective_bench/pass.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>

#include "tools/collective_bench/calls.h"
#include "trainsys/measure/agreed_interrupt.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Operation;

constexpr std::align_val_t kAlignment{64};  // as libtorch's

// All zeros, which stay zeros under any number of sums; every page is there.
class ZeroBuffer {
 public:
  explicit ZeroBuffer(int64_t bytes)
      : data_(::operator new(static_cast<size_t>(bytes), kAlignment)) {
    std::memset(data_.get(), 0, static_cast<size_t>(bytes));
  }
  void* data() const { return data_.get(); }

 private:
  struct Delete {
    void operator()(void* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<void, Delete> data_;
};

int64_t LargestBytes(const std::vector<Case>& cases) {
  int64_t bytes = 1;
  for (const Case& what : cases) bytes = std::max(bytes, what.bytes);
  return bytes;
}

Timed TimeCase(Communicator& comm, const Case& what, const PassOptions& options,
               const std::vector<void*>& buffers) {
  void* mine = buffers[static_cast<size_t>(comm.rank())];
  std::vector<Variant> variants;
  for (const bool is_async : options.is_async) {
    variants.push_back({CallOf(comm, what, mine, is_async), false});
  }
  // One rank has nothing to move, and a barrier no data.
  const bool has_floor = options.has_floor && what.ranks > 1 &&
                         what.operation != Operation::kBarrier;
  if (has_floor) {
    variants.push_back({FloorOf(what, comm.rank(), buffers), true});
  }
  const auto times = TimeInterleaved(comm, variants, options.pace);
  Timed timed;
  for (size_t i = 0; i < options.is_async.size(); ++i) {
    (options.is_async[i] ? timed.async : timed.blocking) = times[i];
  }
  if (has_floor) timed.floor = times.back();
  return timed;
}

}  // namespace

Pass RunPass(collectives::RankRunner& runner, const std::vector<Case>& cases,
             const PassOptions& options) {
  Pass pass;
  if (cases.empty()) return pass;
  const int ranks = cases.front().ranks;
  // Each rank writes its own; read after a barrier, where ranks are threads.
  std::vector<void*> buffers(static_cast<size_t>(ranks));
  std::atomic<int> signal = 0;  // every rank stores the same, or is alone
  runner.Run({.ranks = ranks}, [&](Communicator& comm) {
    const ZeroBuffer buffer(LargestBytes(cases));
    buffers[static_cast<size_t>(comm.rank())] = buffer.data();
    comm.Barrier("buffers are there");
    for (size_t i = 0; i < cases.size(); ++i) {
      if (const int noted = AgreedSignal(comm)) {
        signal = noted;
        break;
      }
      if (comm.rank() == 0 && options.on_case) options.on_case(i);
      const Timed timed = TimeCase(comm, cases[i], options, buffers);
      if (comm.rank() == 0) pass.timed.push_back(timed);
    }
    comm.Barrier("buffers may go");
  });
  pass.signal = signal;
  return pass;
}

}  // namespace trainsys
