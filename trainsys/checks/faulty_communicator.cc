#include "trainsys/checks/faulty_communicator.h"

#include <functional>

namespace trainsys {
namespace {

using collectives::Call;
using collectives::Communicator;
using collectives::Operation;
using collectives::ReduceOp;
using collectives::Work;

// A collective that is not posted before somebody waits for it.
class LateWork final : public Work::State {
 public:
  LateWork(Communicator& comm, Call call)
      : comm_(comm), call_(std::move(call)) {}

  bool IsDone() override { return is_posted_ && work_.IsDone(); }
  void Wait() override {
    if (!std::exchange(is_posted_, true)) work_ = comm_.Post(std::move(call_));
    work_.Wait();
  }
  void OnDone(std::function<void()> fn) override {
    work_.OnDone(std::move(fn));
  }

 private:
  Communicator& comm_;
  Call call_;
  bool is_posted_ = false;
  Work work_;
};

}  // namespace

std::unique_ptr<Communicator> FaultyCommunicator::Duplicate(
    std::string_view name) {
  return std::make_unique<FaultyCommunicator>(inner_.Duplicate(name), fault_);
}

Work FaultyCommunicator::Post(Call call) {
  const bool is_bucket =
      call.is_async && call.operation == Operation::kAllReduce;
  if (fault_ == Fault::kNoAverage && call.reduce_op == ReduceOp::kAverage) {
    call.reduce_op = ReduceOp::kSum;
  }
  if (fault_ == Fault::kMissingAllGather && call.label == "parameters") {
    return Work();
  }
  if (fault_ == Fault::kLaunchAtEnd && is_bucket) {
    return Work(std::make_unique<LateWork>(inner_, std::move(call)));
  }
  Work work = inner_.Post(std::move(call));
  if (fault_ == Fault::kWaitInHook && is_bucket) work.Wait();
  return work;
}

}  // namespace trainsys
