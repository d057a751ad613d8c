#include "collectives/c10d/group.h"

#include <algorithm>
#include <utility>

#include "collectives/c10d/gloo_mesh.h"
#include "collectives/errors.h"

namespace collectives {
namespace {

// One rank needs no connections.
class NoMesh final : public Mesh {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  std::unique_ptr<Transfer> Start(const std::vector<Piece>&,
                                  const std::vector<Piece>&, int,
                                  Phase) override {
    struct Nothing final : Transfer {
      void Wait(int64_t) override {}
    };
    return std::make_unique<Nothing>();
  }
  std::shared_ptr<void> Hold() override { return nullptr; }
  void Close() override {}
};

std::unique_ptr<Mesh> Connect(Store& store,
                              const C10dGroup::Settings& settings) {
  if (settings.ranks == 1) return std::make_unique<NoMesh>();
  return ConnectGlooMesh(store, settings.rank, settings.ranks,
                         settings.options.host, settings.timeout);
}

}  // namespace

C10dGroup::C10dGroup(std::shared_ptr<Store> store, const Settings& settings)
    : settings_(settings),
      store_(std::move(store)),
      verdict_(store_, settings.rank, settings.ranks, settings.timeout),
      mesh_(Connect(*store_, settings)) {
  CheckOptions();
}

C10dGroup::~C10dGroup() {
  channels_.clear();  // waits for their threads
  mesh_->Close();
}

// A barrier whose label is the options: ranks that differ see it, with the
// text of a mismatch.
void C10dGroup::CheckOptions() {
  Call hello;
  hello.label = std::string("matching ") +
                (options().is_matching ? "on" : "off") + ", data moved by " +
                std::string(Name(options().library));
  std::string mismatch;
  try {
    mismatch =
        Matching(*mesh_, 0).Meet(hello, DeadlineAfter(timeout())).mismatch;
  } catch (const LinkError& e) {
    Throw(Explain(e, {"", 0, "connecting"}), "", 0, hello);
  }
  if (!mismatch.empty()) {
    throw InvalidArgument("the ranks' settings differ: " + mismatch);
  }
}

std::shared_ptr<Channel> C10dGroup::Open(int64_t id) {
  if (id > Channel::kMaxChannels) throw Error("too many channels were opened");
  auto channel = std::make_shared<Channel>(*this, id);
  const std::lock_guard lock(mutex_);
  channels_.push_back(channel);
  return channel;
}

std::shared_ptr<const Failure> C10dGroup::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void C10dGroup::ThrowIfFailed() const {
  if (const auto failure = this->failure()) {
    throw PeerFailed(failure->rank, failure->what);
  }
}

void C10dGroup::Fail(const FailureCause& cause) {
  const auto known = failure();
  // Why this rank has withdrawn its call is still to be told.
  if (!known || known->is_withdrawal) End(verdict_.Announce(cause));
}

void C10dGroup::Withdraw() {
  if (!failure()) End(verdict_.Withdraw());
}

Failure C10dGroup::Explain(const LinkError& error, const Standing& standing) {
  if (const auto known = failure()) return *known;
  return End(verdict_.Find(error, standing));
}

Failure C10dGroup::End(Failure failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = std::make_shared<const Failure>(std::move(failure));
    }
  }
  mesh_->Close();
  return *this->failure();
}

void C10dGroup::Leave() {
  std::vector<std::shared_ptr<Channel>> channels;
  {
    const std::lock_guard lock(mutex_);
    channels = channels_;
  }
  for (const auto& channel : channels) channel->Leave();
  for (const auto& channel : channels) channel->Join();
}

}  // namespace collectives
