// A Communicator whose asynchronous collectives are long under way.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/communicator.h"

namespace trainsys {

// A call is handed on only when its channel has had `lag` further ones, or
// somebody waits; so its data moves as late as on a slow network, and without a
// clock. Until then its input must stay what it was: else the test fails.
// Other lags on other ranks make some of them late.
class SlowCommunicator final : public collectives::Communicator {
 public:
  // Lifetime: `inner` outlives it.
  SlowCommunicator(collectives::Communicator& inner, size_t lag)
      : line_(std::make_shared<Line>(inner)), lag_(lag) {}
  SlowCommunicator(std::unique_ptr<collectives::Communicator> inner, size_t lag)
      : owned_(std::move(inner)),
        line_(std::make_shared<Line>(*owned_)),
        lag_(lag) {}
  ~SlowCommunicator() override {
    if (std::uncaught_exceptions() == 0) line_->HandOnAll();
  }

  int rank() const override { return line_->inner.rank(); }
  int ranks() const override { return line_->inner.ranks(); }
  const std::string& channel() const override { return line_->inner.channel(); }
  collectives::Recorder& recorder() override { return line_->inner.recorder(); }

  std::unique_ptr<Communicator> Duplicate(std::string_view name) override {
    line_->HandOnAll();
    return std::make_unique<SlowCommunicator>(line_->inner.Duplicate(name),
                                              lag_);
  }

  collectives::Work Post(collectives::Call call) override {
    if (!call.is_async) {
      line_->HandOnAll();
      return line_->inner.Post(std::move(call));
    }
    auto held = std::make_shared<Held>(std::move(call), line_->inner.rank());
    line_->waiting.push_back(held);
    while (line_->waiting.size() > lag_) line_->HandOnFirst();
    return collectives::Work(std::make_unique<State>(line_, held));
  }

 private:
  using Function = std::function<void()>;

  // What a rank gives to a collective, and what it was when it was posted.
  struct Held {
    Held(collectives::Call posted, int rank) : call(std::move(posted)) {
      const bool is_read =
          call.operation != collectives::Operation::kBroadcast ||
          call.root == rank;
      const auto elems = call.operation == collectives::Operation::kAllGather
                             ? call.counts[static_cast<size_t>(rank)]
                             : call.elems;
      if (!is_read) return;
      const auto* const begin = static_cast<const char*>(call.input);
      const auto bytes = elems * SizeOf(call.dtype);
      if (bytes > 0) before.assign(begin, begin + bytes);
    }

    collectives::Call call;
    std::vector<char> before;
    bool is_handed_on = false;
    std::vector<Function> on_done;
    collectives::Work work;
  };

  struct Line {
    explicit Line(collectives::Communicator& inner) : inner(inner) {}

    void HandOnFirst() {
      const std::shared_ptr<Held> held = waiting.front();
      waiting.pop_front();
      EXPECT_TRUE(held->before.empty() ||
                  std::memcmp(held->before.data(), held->call.input,
                              held->before.size()) == 0)
          << held->call.label << " was written while it was under way";
      held->is_handed_on = true;
      held->work = inner.Post(std::move(held->call));
      for (Function& fn : held->on_done) held->work.OnDone(std::move(fn));
    }
    void HandOnAll() {
      while (!waiting.empty()) HandOnFirst();
    }

    collectives::Communicator& inner;
    std::deque<std::shared_ptr<Held>> waiting;
  };

  class State final : public collectives::Work::State {
   public:
    State(std::shared_ptr<Line> line, std::shared_ptr<Held> held)
        : line_(std::move(line)), held_(std::move(held)) {}
    // As Work has it: waits.
    ~State() override {
      if (std::uncaught_exceptions() == 0) HandOn();
    }

    bool IsDone() override {
      return held_->is_handed_on && held_->work.IsDone();
    }
    void Wait() override {
      HandOn();
      held_->work.Wait();
    }
    void OnDone(Function fn) override {
      if (held_->is_handed_on) return held_->work.OnDone(std::move(fn));
      held_->on_done.push_back(std::move(fn));
    }

   private:
    void HandOn() {
      while (!held_->is_handed_on) line_->HandOnFirst();
    }

    const std::shared_ptr<Line> line_;
    const std::shared_ptr<Held> held_;
  };

  std::unique_ptr<collectives::Communicator> owned_;
  const std::shared_ptr<Line> line_;
  const size_t lag_;
};

}  // namespace trainsys
