#include "trainsys/memory/ledger_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/version.h>

#include <mutex>
#include <new>

namespace trainsys {
namespace {

MemoryBlock* BlockBefore(void* data) {
  return static_cast<MemoryBlock*>(data) - 1;
}

void Delete(void* data) {
  if (data == nullptr) return;
  MemoryBlock* const block = BlockBefore(data);
  const std::shared_ptr<MemoryAccount> account = block->account;
  account->Free(*block);
  block->~MemoryBlock();
  c10::free_cpu(block);
}

class LedgerAllocator final : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) override { return Allocate(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
#else
  c10::DataPtr allocate(size_t bytes) const override { return Allocate(bytes); }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }

 private:
  // The memory is aligned to 64 bytes, and so is what follows the block: the
  // data starts as libtorch's own allocator starts it.
  static c10::DataPtr Allocate(size_t bytes) {
    void* data = nullptr;
    if (bytes > 0) {
      void* const memory = c10::alloc_cpu(sizeof(MemoryBlock) + bytes);
      const MemoryContext& mine = OfThisThread();
      auto* const block = new (memory)
          MemoryBlock{.account = mine.account ? mine.account : ProcessAccount(),
                      .bytes = static_cast<int64_t>(bytes),
                      .category = mine.category};
      block->account->Allocate(*block);
      data = block + 1;
    }
    return {data, data, &Delete, c10::Device(c10::DeviceType::CPU)};
  }
};

}  // namespace

void InstallLedgerAllocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never destroyed: tensors with static lifetime are freed at exit.
    static auto* const allocator = new LedgerAllocator;
    c10::SetCPUAllocator(allocator, /*priority=*/1);
  });
}

MemoryBlock* BlockOf(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() != &Delete || data.get() == nullptr) return nullptr;
  return BlockBefore(data.get());
}

MemoryContext& OfThisThread() {
  static thread_local MemoryContext memory;
  return memory;
}

const std::shared_ptr<MemoryAccount>& ProcessAccount() {
  // Never destroyed, as above.
  static auto* const account = new std::shared_ptr<MemoryAccount>(
      std::make_shared<MemoryAccount>(/*event_capacity=*/0));
  return *account;
}

}  // namespace trainsys
