#include "trainsys/ddp/data_parallel.h"

#include <map>

namespace trainsys {

// Several may lie in one storage.
int64_t DataParallel::GradientBytes() const {
  std::map<const void*, int64_t> bytes;
  for (const at::Tensor& p : parameters()) {
    if (!p.grad().defined()) continue;
    const at::Storage& storage = p.grad().storage();
    bytes[storage.unsafeGetStorageImpl()] =
        static_cast<int64_t>(storage.nbytes());
  }
  int64_t sum = 0;
  for (const auto& [storage, of_storage] : bytes) sum += of_storage;
  return sum;
}

}  // namespace trainsys
