#include "trainsys/memory/ledger.h"

#include <utility>

#include "collectives/errors.h"
#include "trainsys/memory/account.h"
#include "trainsys/memory/ledger_allocator.h"

namespace trainsys {

MemoryLedger::MemoryLedger(size_t event_capacity)
    : MemoryLedger(std::make_shared<MemoryAccount>(event_capacity)) {}

MemoryLedger::MemoryLedger(std::shared_ptr<MemoryAccount> account)
    : account_(std::move(account)) {
  InstallLedgerAllocator();
}

MemoryLedger::~MemoryLedger() = default;

MemorySplit MemoryLedger::Current() const { return account_->Current(); }

int64_t MemoryLedger::LiveBytes() const { return account_->LiveBytes(); }

MemoryPeak MemoryLedger::Peak() const { return account_->Peak(); }

void MemoryLedger::ResetPeak() { account_->ResetPeak(); }

MemorySplit MemoryLedger::At(std::string_view name) const {
  for (const MemoryMark& mark : account_->Marks()) {
    if (mark.name == name) return mark.split;
  }
  throw collectives::Error("no memory mark '" + std::string(name) + "'");
}

std::vector<MemoryMark> MemoryLedger::Marks() const {
  return account_->Marks();
}

std::vector<MemoryEvent> MemoryLedger::Events() const {
  return account_->Events();
}

uint64_t MemoryLedger::lost_events() const { return account_->lost_events(); }

MemoryLedger& ProcessLedger() {
  static auto* const ledger = new MemoryLedger(ProcessAccount());
  return *ledger;
}

LedgerScope::LedgerScope(const MemoryLedger& ledger)
    : previous_(std::exchange(OfThisThread().account, ledger.account_)) {}

LedgerScope::~LedgerScope() { OfThisThread().account = previous_; }

MemoryContext CurrentMemoryContext() { return OfThisThread(); }

MemoryContextScope::MemoryContextScope(MemoryContext context)
    : previous_(std::exchange(OfThisThread(), std::move(context))) {}

MemoryContextScope::~MemoryContextScope() { OfThisThread() = previous_; }

CategoryScope::CategoryScope(MemoryCategory category)
    : previous_(std::exchange(OfThisThread().category, category)) {}

CategoryScope::~CategoryScope() { OfThisThread().category = previous_; }

void Attribute(const at::Tensor& tensor, MemoryCategory category,
               int64_t padding_bytes) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  MemoryBlock* const block = BlockOf(*tensor.storage().unsafeGetStorageImpl());
  if (block == nullptr) return;
  block->account->Attribute(*block, category, padding_bytes);
}

void MarkMemory(std::string_view name) {
  if (const auto& account = OfThisThread().account) account->Mark(name);
}

void HoldForBackward(const c10::StorageImpl& storage) {
  if (MemoryBlock* const block = BlockOf(storage)) block->account->Hold(*block);
}

void ReleaseFromBackward(const c10::StorageImpl& storage) {
  if (MemoryBlock* const block = BlockOf(storage)) {
    block->account->Release(*block);
  }
}

}  // namespace trainsys
