#include "trainsys/memory/saved_bytes.h"

#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "collectives/recomputing.h"
#include "trainsys/memory/ledger.h"

namespace trainsys {
namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
using StorageKey = const c10::StorageImpl*;

}  // namespace

// The books of one scope, shared with the hooks of every tensor that it
// counted: they outlive the scope where the graph does.
class SavedBytesScope::Account {
 public:
  explicit Account(const std::vector<at::Tensor>& parameters) {
    for (const at::Tensor& p : parameters) {
      if (!p.defined() || !p.has_storage()) continue;
      parameters_.emplace(KeyOf(p), p.storage().getWeakStorageImpl());
    }
  }

  // Returns what to give to Remove(); null where nothing is to be removed.
  StorageKey Add(const at::Tensor& t) {
    const std::lock_guard lock(mutex_);
    if (!collectives::IsRecomputing()) raw_bytes_ += t.numel() * t.itemsize();
    if (!t.has_storage() || parameters_.count(KeyOf(t)) > 0) return nullptr;
    Entry& entry = live_[KeyOf(t)];
    if (entry.uses++ == 0) Open(entry, t.storage());
    return KeyOf(t);
  }

  void Remove(StorageKey key) {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(key);
    if (--it->second.uses > 0) return;
    const auto alive = it->second.storage->lock();
    // Memory that was exchanged meanwhile, by a resize, is not what was held.
    if (alive && alive->data() == it->second.data) ReleaseFromBackward(*alive);
    distinct_bytes_ -= it->second.bytes;
    live_.erase(it);
  }

  int64_t raw_bytes() const { return Read(raw_bytes_); }
  int64_t distinct_bytes() const { return Read(distinct_bytes_); }
  int64_t peak_distinct_bytes() const { return Read(peak_distinct_bytes_); }

 private:
  struct Entry {
    int64_t uses = 0;
    int64_t bytes = 0;
    // Keeps the address, not the data, from being used again: the key stays
    // unique even where an enclosing scope lets the tensor go.
    std::optional<WeakStorage> storage;
    const void* data = nullptr;
  };

  static StorageKey KeyOf(const at::Tensor& t) {
    return t.storage().unsafeGetStorageImpl();
  }

  void Open(Entry& entry, const c10::Storage& storage) {
    entry.bytes = static_cast<int64_t>(storage.nbytes());
    entry.storage = storage.getWeakStorageImpl();
    entry.data = storage.data();
    HoldForBackward(*storage.unsafeGetStorageImpl());
    distinct_bytes_ += entry.bytes;
    peak_distinct_bytes_ = std::max(peak_distinct_bytes_, distinct_bytes_);
  }

  int64_t Read(const int64_t& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  mutable std::mutex mutex_;  // guards everything below but parameters_
  int64_t raw_bytes_ = 0;
  int64_t distinct_bytes_ = 0;
  int64_t peak_distinct_bytes_ = 0;
  std::unordered_map<StorageKey, Entry> live_;
  std::unordered_map<StorageKey, WeakStorage> parameters_;
};

namespace {

using torch::autograd::SavedVariable;
using torch::autograd::SavedVariableHooks;

class CountingHooks final : public SavedVariableHooks {
 public:
  CountingHooks(std::shared_ptr<SavedBytesScope::Account> account,
                const SavedTensorHookScope& scope)
      : account_(std::move(account)), scope_(scope) {}

  ~CountingHooks() override {
    if (key_ != nullptr) account_->Remove(key_);
  }

  void call_pack_hook(const at::Tensor& t) override {
    // A number of the program, not a tensor: newer versions of libtorch do not
    // show it to hooks at all.
    const bool is_number = t.unsafeGetTensorImpl()->is_wrapped_number();
    if (!is_number) key_ = account_->Add(t);
    // Detached: a node's own output would otherwise hold the node that holds
    // it. As a SavedVariable: it checks the version, and outer scopes see it.
    const OutsideHookScope outside(scope_);
    saved_ = SavedVariable(t.detach(), /*is_output=*/false);
  }

  at::Tensor call_unpack_hook() override { return saved_.unpack(); }

 private:
  const std::shared_ptr<SavedBytesScope::Account> account_;
  const SavedTensorHookScope& scope_;  // alive whenever something is packed
  StorageKey key_ = nullptr;
  SavedVariable saved_;
};

}  // namespace

SavedBytesScope::SavedBytesScope(const std::vector<at::Tensor>& parameters)
    : account_(std::make_shared<Account>(parameters)), scope_([this] {
        return std::make_unique<CountingHooks>(account_, scope_);
      }) {}

SavedBytesScope::~SavedBytesScope() = default;

int64_t SavedBytesScope::raw_bytes() const { return account_->raw_bytes(); }

int64_t SavedBytesScope::distinct_bytes() const {
  return account_->distinct_bytes();
}

int64_t SavedBytesScope::peak_distinct_bytes() const {
  return account_->peak_distinct_bytes();
}

}  // namespace trainsys
