// Where ranks meet before they are connected, and leave word when they no
// longer are: a key-value store that all of them reach.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collectives/c10d/world.h"

namespace collectives {

// Calls `fn` on a thread of its own; false if it has not returned by the
// deadline, and then it goes on alone: it must own all that it touches.
// Errors: what `fn` throws.
bool RunWithDeadline(std::chrono::nanoseconds deadline,
                     std::function<void()> fn);

// Threads: any thread. No call blocks longer than a store's host that has died
// or stopped makes it: use RunWithDeadline.
// Errors: Error when the host of the store does not answer.
class Store {
 public:
  // Over the network. Blocks until the host serves it.
  static std::shared_ptr<Store> Connect(const World& world,
                                        std::chrono::nanoseconds timeout);
  // In a file that all ranks reach.
  static std::shared_ptr<Store> InFile(const std::string& path, int ranks);
  // In this process, for ranks that are threads.
  static std::shared_ptr<Store> InProcess();

  ~Store();

  // The same store under other keys.
  std::shared_ptr<Store> WithPrefix(const std::string& prefix) const;

  void Set(const std::string& key, const std::string& value);
  // Nothing if nobody has set the key.
  std::optional<std::string> TryGet(const std::string& key);
  // True for the first caller of all ranks.
  bool Claim(const std::string& key);

  // "rank 0 at 10.0.0.1:29500": who serves it, for messages.
  const std::string& host() const { return host_; }

  struct Holder;  // of libtorch's store, in store_holder.h
  const Holder& holder() const { return *holder_; }

 private:
  Store(std::unique_ptr<Holder> holder, std::string host);

  std::unique_ptr<Holder> holder_;
  std::string host_;
};

}  // namespace collectives
