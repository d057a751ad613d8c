#include "collectives/c10d/store.h"

#include <torch/version.h>

#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "collectives/c10d/libtorch_text.h"
#include "collectives/c10d/store_holder.h"
#include "collectives/c10d/store_server.h"
#include "collectives/errors.h"

namespace collectives {
namespace {

// libtorch's errors become ours, in one line.
template <typename Fn>
auto Guarded(const std::string& host, Fn fn) {
  try {
    return fn();
  } catch (const std::exception& e) {
    throw Error("the store of " + host +
                " does not answer: " + FirstLine(e.what()));
  }
}

c10d::TCPStoreOptions OptionsFor(const World& world,
                                 std::chrono::nanoseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(world.port);
  options.isServer = world.rank == 0 && !world.has_agent_store;
  options.numWorkers = world.ranks;
  // Who is missing is found out, and named, when the ranks connect.
  options.waitWorkers = false;
  options.timeout = AsMilliseconds(timeout);
#if TORCH_VERSION_MAJOR >= 2
  options.useLibUV = false;  // Debian's is built without it
#endif
  return options;
}

}  // namespace

bool RunWithDeadline(std::chrono::nanoseconds deadline,
                     std::function<void()> fn) {
  std::packaged_task<void()> task(std::move(fn));
  std::future<void> done = task.get_future();
  std::thread(std::move(task)).detach();
  if (done.wait_for(AsMilliseconds(deadline)) != std::future_status::ready) {
    return false;
  }
  done.get();
  return true;
}

Store::Store(std::unique_ptr<Holder> holder, std::string host)
    : holder_(std::move(holder)), host_(std::move(host)) {}

Store::~Store() = default;

std::shared_ptr<Store> Store::Connect(const World& world,
                                      std::chrono::nanoseconds timeout) {
  const std::string host =
      std::string(world.has_agent_store ? "the launcher" : "rank 0") + " at " +
      world.address + ":" + std::to_string(world.port);
  auto holder = std::make_shared<std::unique_ptr<Holder>>();
  const bool has_connected = RunWithDeadline(timeout, [=] {
    *holder = Guarded(host, [&] {
      return std::make_unique<Holder>(
          Holder{c10::make_intrusive<c10d::TCPStore>(
              world.address, OptionsFor(world, timeout))});
    });
  });
  if (!has_connected) {
    throw TimeoutError("cannot reach the store of " + host + ": no answer");
  }
  return std::shared_ptr<Store>(new Store(std::move(*holder), host));
}

std::shared_ptr<Store> Store::InFile(const std::string& path, int ranks) {
  auto store = c10::make_intrusive<c10d::FileStore>(path, ranks);
  // Its check() waits until somebody has set something.
  store->add("opened", 1);
  return std::shared_ptr<Store>(new Store(
      std::make_unique<Holder>(Holder{std::move(store)}), "the file " + path));
}

std::shared_ptr<Store> Store::InProcess() {
  return std::shared_ptr<Store>(new Store(
      std::make_unique<Holder>(Holder{c10::make_intrusive<c10d::HashStore>()}),
      "this process"));
}

std::shared_ptr<Store> Store::WithPrefix(const std::string& prefix) const {
  return std::shared_ptr<Store>(new Store(
      std::make_unique<Holder>(Holder{
          c10::make_intrusive<c10d::PrefixStore>(prefix, holder_->store)}),
      host_));
}

void Store::Set(const std::string& key, const std::string& value) {
  Guarded(host_, [&] {
    holder_->store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
  });
}

std::optional<std::string> Store::TryGet(const std::string& key) {
  return Guarded(host_, [&]() -> std::optional<std::string> {
    if (!holder_->store->check({key})) return std::nullopt;
    const std::vector<uint8_t> value = holder_->store->get(key);
    return std::string(value.begin(), value.end());
  });
}

bool Store::Claim(const std::string& key) {
  return Guarded(host_, [&] { return holder_->store->add(key, 1) == 1; });
}

struct StoreServer::Holder {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreServer::StoreServer() {
  World world;
  world.port = 0;  // any that is free
  const auto options = OptionsFor(world, std::chrono::seconds(60));
  holder_ = Guarded("this process", [&] {
    return std::make_unique<Holder>(
        Holder{c10::make_intrusive<c10d::TCPStore>(world.address, options)});
  });
}

StoreServer::~StoreServer() = default;

int StoreServer::port() const { return holder_->store->getPort(); }

}  // namespace collectives
