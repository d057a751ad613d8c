// The solution of the tutorial passes all checks, and each state that one
// passes through on the way there is told from the others.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "collectives/shm/run_ranks.h"
#include "tests/exercise/solution/bucketed_ddp.h"
#include "tests/exercise/solution/checkpoint.h"
#include "tests/exercise/solution/zero1.h"
#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/checks/checks.h"
#include "trainsys/checks/parts.h"
#include "trainsys/tensor/tensor_memory.h"
#include "trainsys/zero/flat_optimizer.h"

namespace trainsys {
namespace {

using collectives::Call;
using collectives::Communicator;
using collectives::Operation;
using collectives::ReduceOp;
using collectives::Work;
using exercise::Segment;
using ::testing::HasSubstr;

Parts Solution() {
  return {[](torch::nn::Module& module, Communicator& comm,
             int64_t bucket_bytes) -> std::unique_ptr<DataParallel> {
            return std::make_unique<exercise::BucketedDDP>(module, comm,
                                                           bucket_bytes);
          },
          [](std::vector<at::Tensor> parameters, Communicator& comm,
             const AdamWOptions& options) -> std::unique_ptr<Optimizer> {
            return std::make_unique<exercise::ZeRO1>(std::move(parameters),
                                                     comm, options);
          },
          exercise::Checkpoint};
}

// How a call goes on: posted, changed, or dropped.
using Poster = std::function<Work(Communicator& inner, Call call)>;

class Altered final : public Communicator {
 public:
  Altered(std::unique_ptr<Communicator> inner, Poster post)
      : inner_(std::move(inner)), post_(std::move(post)) {}

  int rank() const override { return inner_->rank(); }
  int ranks() const override { return inner_->ranks(); }
  const std::string& channel() const override { return inner_->channel(); }
  collectives::Recorder& recorder() override { return inner_->recorder(); }
  std::unique_ptr<Communicator> Duplicate(std::string_view name) override {
    return std::make_unique<Altered>(inner_->Duplicate(name), post_);
  }
  Work Post(Call call) override { return post_(*inner_, std::move(call)); }

 private:
  const std::unique_ptr<Communicator> inner_;
  const Poster post_;
};

// Keeps the communicator for as long as the part that uses it.
class OnAltered final : public DataParallel {
 public:
  OnAltered(torch::nn::Module& module, Communicator& comm, int64_t bucket_bytes,
            Poster post)
      : comm_(comm.Duplicate("altered"), std::move(post)),
        ddp_(module, comm_, bucket_bytes) {}

  const std::vector<at::Tensor>& parameters() const override {
    return ddp_.parameters();
  }
  void BeginForward() override { ddp_.BeginForward(); }
  void FinishGradientSync() override { ddp_.FinishGradientSync(); }

 private:
  Altered comm_;
  exercise::BucketedDDP ddp_;
};

// `make_poster`: called on each rank.
Parts WithPoster(std::function<Poster()> make_poster) {
  Parts parts = Solution();
  parts.ddp = [make_poster](torch::nn::Module& module, Communicator& comm,
                            int64_t bucket_bytes) {
    return std::make_unique<OnAltered>(module, comm, bucket_bytes,
                                       make_poster());
  };
  return parts;
}

Parts Dropping(std::function<bool(const Communicator&, const Call&)> is_hit) {
  return WithPoster([is_hit] {
    return [is_hit](Communicator& inner, Call call) {
      return is_hit(inner, call) ? Work() : inner.Post(std::move(call));
    };
  });
}

bool IsBucket(const Call& call) {
  return call.operation == Operation::kAllReduce;
}

Parts NoFirstBroadcast() {
  return Dropping([](const Communicator&, const Call& call) {
    return call.operation == Operation::kBroadcast;
  });
}

Parts NothingReduced() {
  return Dropping(
      [](const Communicator&, const Call& call) { return IsBucket(call); });
}

Parts Rank1PostsNothing() {
  return Dropping([](const Communicator& comm, const Call& call) {
    return IsBucket(call) && comm.rank() == 1;
  });
}

Parts OnlyTheFirstStepReduced() {
  return WithPoster([] {
    return [num_posted = 0](Communicator& inner, Call call) mutable {
      if (IsBucket(call) && ++num_posted > 5) return Work();
      return inner.Post(std::move(call));
    };
  });
}

Parts BlockingInHooks() {
  return WithPoster([] {
    return [](Communicator& inner, Call call) {
      call.is_async = false;
      Work work = inner.Post(std::move(call));
      work.Wait();
      return work;
    };
  });
}

// Done when what was posted in its place is.
class HeldWork final : public Work::State {
 public:
  explicit HeldWork(std::shared_ptr<Work> posted)
      : posted_(std::move(posted)) {}
  bool IsDone() override { return posted_->IsDone(); }
  void Wait() override { posted_->Wait(); }
  void OnDone(std::function<void()> fn) override {
    posted_->OnDone(std::move(fn));
  }

 private:
  const std::shared_ptr<Work> posted_;
};

// As if the last gradient's hook posted all five.
Parts PostedTogether() {
  struct Held {
    Call call;
    std::shared_ptr<Work> posted = std::make_shared<Work>();
  };
  return WithPoster([] {
    const auto held = std::make_shared<std::vector<Held>>();
    return [held](Communicator& inner, Call call) {
      if (!IsBucket(call)) return inner.Post(std::move(call));
      held->push_back({std::move(call)});
      Work work(std::make_unique<HeldWork>(held->back().posted));
      if (held->size() < 5) return work;
      for (Held& h : *held) *h.posted = inner.Post(std::move(h.call));
      held->clear();
      return work;
    };
  });
}

// Three reductions of one element inside backward; the gradients after it.
class Decoys final : public DataParallel {
 public:
  Decoys(torch::nn::Module& module, Communicator& comm)
      : parameters_(module.parameters()), comm_(comm.Duplicate("decoys")) {
    for (const at::Tensor& p : parameters_) {
      comm_->Broadcast(BufferOf(p.detach()), /*root=*/0, "first parameters");
    }
    for (size_t i = 0; i < 3; ++i) {
      hooks_.emplace_back(parameters_[2 * i], [this] { PostDecoy(); });
    }
  }

  const std::vector<at::Tensor>& parameters() const override {
    return parameters_;
  }
  void BeginForward() override {
    works_.clear();
    decoys_.clear();
  }
  void FinishGradientSync() override {
    for (Work& work : works_) work.Wait();
    for (const at::Tensor& p : parameters_) {
      comm_->AllReduce(BufferOf(p.grad()), ReduceOp::kAverage, "real");
    }
  }

 private:
  void PostDecoy() {
    decoys_.push_back(at::ones({1}));
    works_.push_back(comm_->StartAllReduce(BufferOf(decoys_.back()),
                                           ReduceOp::kAverage, "decoy"));
  }

  const std::vector<at::Tensor> parameters_;
  const std::unique_ptr<Communicator> comm_;
  std::vector<at::Tensor> decoys_;
  std::vector<Work> works_;
  std::vector<GradientHook> hooks_;
};

Parts WithDecoys() {
  Parts parts = Solution();
  parts.ddp = [](torch::nn::Module& module, Communicator& comm, int64_t) {
    return std::make_unique<Decoys>(module, comm);
  };
  return parts;
}

Parts WithBuckets(int64_t bytes) {
  Parts parts = Solution();
  parts.ddp = [bytes](torch::nn::Module& module, Communicator& comm, int64_t) {
    return std::make_unique<exercise::BucketedDDP>(module, comm, bytes);
  };
  return parts;
}

Parts Throwing() {
  Parts parts = Solution();
  parts.ddp = [](torch::nn::Module&, Communicator& comm,
                 int64_t) -> std::unique_ptr<DataParallel> {
    if (comm.rank() == 1) throw std::runtime_error("words of the reader's");
    comm.Barrier("never");
    return nullptr;
  };
  return parts;
}

// The solution's, but for what a derived class overrides.
class AlmostZeRO1 : public Optimizer {
 public:
  AlmostZeRO1(const std::vector<at::Tensor>& parameters, Communicator& comm,
              const AdamWOptions& options)
      : parameters_(parameters), inner_(parameters, comm, options) {}

  void ZeroGrad() override { inner_.ZeroGrad(); }
  void StepScaled(double scale) override { inner_.StepScaled(scale); }
  double GradNorm() override { return inner_.GradNorm(); }
  int64_t StateBytes() const override { return inner_.StateBytes(); }

 protected:
  const std::vector<at::Tensor> parameters_;

 private:
  exercise::ZeRO1 inner_;
};

// As if shards were elements / ranks, rounded down.
class TailForgotten final : public AlmostZeRO1 {
 public:
  using AlmostZeRO1::AlmostZeRO1;
  void StepScaled(double scale) override {
    const at::Tensor tail = parameters_.back().detach().slice(0, -3);
    const at::Tensor before = tail.clone();
    AlmostZeRO1::StepScaled(scale);
    tail.copy_(before);
  }
};

class GradientsKept final : public AlmostZeRO1 {
 public:
  using AlmostZeRO1::AlmostZeRO1;
  void ZeroGrad() override {}
};

class NormOfAShard final : public AlmostZeRO1 {
 public:
  using AlmostZeRO1::AlmostZeRO1;
  double GradNorm() override { return AlmostZeRO1::GradNorm() / 2; }
};

// The solution, with something of the whole's size that it does not count.
class MomentsOfAllKept final : public AlmostZeRO1 {
 public:
  using AlmostZeRO1::AlmostZeRO1;
  void StepScaled(double scale) override {
    AlmostZeRO1::StepScaled(scale);
    if (!moments_.empty()) return;
    for (const at::Tensor& p : parameters_) {
      moments_.push_back(at::zeros({2, p.numel()}));
    }
  }

 private:
  std::vector<at::Tensor> moments_;
};

// All moments on every rank, and nothing is sent; says that it holds its part.
class SaysItIsSharded final : public Optimizer {
 public:
  SaysItIsSharded(const std::vector<at::Tensor>& parameters, Communicator& comm,
                  const AdamWOptions& options)
      : ranks_(comm.ranks()), whole_(parameters, options) {}

  void ZeroGrad() override { whole_.ZeroGrad(); }
  void StepScaled(double scale) override { whole_.StepScaled(scale); }
  double GradNorm() override { return whole_.GradNorm(); }
  int64_t StateBytes() const override { return whole_.StateBytes() / ranks_; }

 private:
  const int ranks_;
  FlatOptimizer whole_;
};

// Right: each parameter, the largest first, is updated by the rank that has
// least so far. Moments are made in the first step, and gradients set to zero.
class WholeParameters final : public Optimizer {
 public:
  WholeParameters(std::vector<at::Tensor> parameters, Communicator& comm,
                  const AdamWOptions& options)
      : parameters_(std::move(parameters)),
        comm_(comm.Duplicate("whole")),
        options_(options) {
    std::ranges::stable_sort(parameters_, std::ranges::greater{},
                             [](const at::Tensor& p) { return p.numel(); });
    std::vector<int64_t> elems(static_cast<size_t>(comm_->ranks()));
    for (const at::Tensor& p : parameters_) {
      const auto least = std::ranges::min_element(elems);
      *least += p.numel();
      owners_.push_back(static_cast<int>(least - elems.begin()));
      if (owners_.back() == comm_->rank()) own_.push_back(p);
    }
  }

  void ZeroGrad() override {
    for (const at::Tensor& p : parameters_) {
      if (p.grad().defined()) {
        p.grad().zero_();
      } else {
        p.mutable_grad() = at::zeros_like(p);
      }
    }
  }
  void StepScaled(double scale) override {
    if (!optimizer_) {
      optimizer_ = std::make_unique<FlatOptimizer>(own_, options_);
    }
    optimizer_->StepScaled(scale);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      comm_->Broadcast(BufferOf(parameters_[i].detach()), owners_[i],
                       "updated");
    }
  }
  double GradNorm() override {
    double squares = 0;
    for (const at::Tensor& p : parameters_) {
      squares += p.grad().square().sum().item<double>();
    }
    return std::sqrt(squares);
  }
  int64_t StateBytes() const override { return optimizer_->StateBytes(); }

 private:
  std::vector<at::Tensor> parameters_, own_;
  const std::unique_ptr<Communicator> comm_;
  const AdamWOptions options_;
  std::vector<int> owners_;
  std::unique_ptr<FlatOptimizer> optimizer_;
};

class OneMomentCounted final : public AlmostZeRO1 {
 public:
  using AlmostZeRO1::AlmostZeRO1;
  int64_t StateBytes() const override { return AlmostZeRO1::StateBytes() / 2; }
};

template <typename ZeRO1>
Parts WithZeRO1() {
  Parts parts = Solution();
  parts.zero1 = [](std::vector<at::Tensor> parameters, Communicator& comm,
                   const AdamWOptions& options) {
    return std::make_unique<ZeRO1>(std::move(parameters), comm, options);
  };
  return parts;
}

Parts Unsharded() {
  Parts parts = Solution();
  parts.zero1 = [](std::vector<at::Tensor> parameters, Communicator&,
                   const AdamWOptions& options) {
    return std::make_unique<FlatOptimizer>(std::move(parameters), options);
  };
  return parts;
}

Parts WithCheckpoint(BlockRunner checkpoint) {
  Parts parts = Solution();
  parts.checkpoint = std::move(checkpoint);
  return parts;
}

Parts WithoutGradients() {
  return WithCheckpoint([](const Segment& fn, const at::Tensor& x) {
    const c10::AutoGradMode without(false);
    return fn(x);
  });
}

Parts WithoutGradientOfX() {
  return WithCheckpoint([](const Segment& fn, const at::Tensor& x) {
    return exercise::Checkpoint(fn, x.detach().requires_grad_());
  });
}

// Half of the output comes from the plain graph, half from the second forward.
Parts WithTwoGraphs() {
  return WithCheckpoint([](const Segment& fn, const at::Tensor& x) {
    return 0.5 * fn(x) + 0.5 * exercise::Checkpoint(fn, x);
  });
}

Parts WithOtherRandomNumbers() {
  return WithCheckpoint([](const Segment& fn, const at::Tensor& x) {
    const auto num_runs = std::make_shared<int>(0);
    return exercise::Checkpoint(
        [fn, num_runs](const at::Tensor& t) {
          if (++*num_runs == 2) at::rand({1});
          return fn(t);
        },
        x);
  });
}

// The second forward draws, and its numbers are drawn no more.
Parts WithGeneratorNotPutBack() {
  return WithCheckpoint([](const Segment& fn, const at::Tensor& x) {
    const at::Tensor y = exercise::Checkpoint(fn, x);
    y.register_hook([](const at::Tensor&) { at::rand({1}); });
    return y;
  });
}

Parts WithOtherOutput() {
  return WithCheckpoint([](const Segment& fn, const at::Tensor& x) {
    return exercise::Checkpoint(fn, x) * 1.5;
  });
}

// A way to be wrong, which check says so, and the words.
struct Wrong {
  std::string name;
  size_t check = 1;  // as printed
  Parts parts;
  std::string words;
  Fault fault = Fault::kNone;
  std::chrono::seconds timeout{60};
};

void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

CheckResult RunMine(const Wrong& wrong) {
  CheckOptions options(wrong.fault);
  options.mine = &wrong.parts;
  options.timeout = wrong.timeout;
  collectives::ThreadRunner runner;
  return RunCheck(kChecks[wrong.check - 1], options, runner);
}

TEST(SolutionTest, PassesAllFourChecks) {
  for (size_t number = 1; number <= kChecks.size(); ++number) {
    const CheckResult result = RunMine({"right", number, Solution(), ""});
    EXPECT_TRUE(result.has_passed) << fmt::format("{}", result.lines);
    EXPECT_THAT(result.name, HasSubstr("my "));
  }
}

TEST(SolutionTest, WholeParametersOnARankAreShardedAsWell) {
  for (const size_t number : {2, 4}) {
    const CheckResult result =
        RunMine({"whole", number, WithZeRO1<WholeParameters>(), ""});
    EXPECT_TRUE(result.has_passed) << fmt::format("{}", result.lines);
  }
}

class WrongPartsTest : public testing::TestWithParam<Wrong> {};

TEST_P(WrongPartsTest, AreToldWithNumbersExpectationAndWhereToRead) {
  const Wrong& wrong = GetParam();
  const CheckResult result = RunMine(wrong);
  EXPECT_FALSE(result.has_passed);
  EXPECT_THAT(result.lines[0], HasSubstr(wrong.words));
  EXPECT_EQ(result.lines.back(),
            "read docs/tutorial.md, " + std::to_string(wrong.check));
}

INSTANTIATE_TEST_SUITE_P(
    DDP, WrongPartsTest,
    testing::Values(
        Wrong{"start", 1, NoFirstBroadcast(),
              "rank 1 starts with other parameters than rank 0, up to 0."},
        Wrong{"own", 1, NothingReduced(),
              "step 1: gradients are rank 0's own, up to 0."},
        Wrong{"sums", 1, Solution(), "2 times the mean over ranks: sums",
              Fault::kNoAverage},
        Wrong{"first_step_only", 1, OnlyTheFirstStepReduced(),
              "step 2: gradients are rank 0's own"},
        Wrong{"at_the_end", 1, Solution(),
              "step 1, rank 0: 0 of 5 asynchronous reductions were posted",
              Fault::kLaunchAtEnd},
        Wrong{"waiting", 1, Solution(), "5 of 5 reductions were waited for",
              Fault::kWaitInHook},
        Wrong{"blocking", 1, BlockingInHooks(), "5 blocking reductions inside"},
        Wrong{"posted_together", 1, PostedTogether(),
              "all 5 reductions were posted after the last gradient"},
        Wrong{"one_bucket", 1, WithBuckets(1 << 30),
              "all gradients are in one bucket"},
        Wrong{"no_buckets", 1, WithBuckets(1),
              "8 reductions inside backward for 8 parameters"},
        Wrong{"large_buckets", 1, WithBuckets(100'000),
              "a bucket of 82432 bytes, where bucket_bytes is 32768 and the "
              "largest gradient 65536"},
        Wrong{"decoys", 1, WithDecoys(),
              "reductions of 12 bytes inside backward, where the gradients are "
              "153120"},
        Wrong{"one_bucket_in_all_three", 4, WithBuckets(1 << 30),
              "all gradients are in one bucket"},
        Wrong{"waiting_in_all_three", 4, Solution(),
              "reductions were waited for inside backward", Fault::kWaitInHook},
        Wrong{"exception", 1, Throwing(), "rank 1: words of the reader's"},
        Wrong{"deadlock", 1, Rank1PostsNothing(),
              "timed out after 2 s waiting for rank ", Fault::kNone,
              std::chrono::seconds(2)},
        Wrong{"sums_in_all_three", 4, Solution(), "2 times the mean",
              Fault::kNoAverage}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    ZeRO1, WrongPartsTest,
    testing::Values(
        Wrong{"not_gathered", 2, Solution(), "the shards were not gathered",
              Fault::kMissingAllGather},
        Wrong{"tail", 2, WithZeRO1<TailForgotten>(), "step 1 left 3 of "},
        Wrong{"not_sharded", 2, Unsharded(),
              "rank 0 holds 306304 bytes of optimizer state, where the whole "
              "is 306240"},
        Wrong{"says_it_is_sharded", 2, WithZeRO1<SaysItIsSharded>(),
              "(StateBytes() says 76576), where the whole is 306240: it is not "
              "sharded"},
        Wrong{"says_so_in_all_three", 4, WithZeRO1<SaysItIsSharded>(),
              "it is not sharded"},
        Wrong{"moments_kept", 2, WithZeRO1<MomentsOfAllKept>(),
              "rank 0 keeps 382800 bytes beside parameters and gradients "
              "(StateBytes() says 76560)"},
        Wrong{"little_state", 2, WithZeRO1<OneMomentCounted>(),
              "153120 bytes of optimizer state on all ranks together"},
        Wrong{"gradients_kept", 2, WithZeRO1<GradientsKept>(),
              "step 2: gradients of rank 0 are up to"},
        Wrong{"norm", 2, WithZeRO1<NormOfAShard>(),
              "step 1: GradNorm() of rank 0 is "}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Checkpoint, WrongPartsTest,
    testing::Values(
        Wrong{"everything_kept", 3,
              WithCheckpoint([](const Segment& fn, const at::Tensor& x) {
                return fn(x);
              }),
              "10813440 of 10813440 bytes raw were saved"},
        Wrong{"no_gradients", 3, WithoutGradients(),
              "16 of 16 parameters have no gradient"},
        Wrong{"no_gradient_of_x", 3, WithoutGradientOfX(),
              "12 of 16 parameters have no gradient"},
        Wrong{"hooks_twice", 3, WithTwoGraphs(),
              "accumulated 2 times in one backward"},
        Wrong{"random_numbers", 3, WithOtherRandomNumbers(),
              "the second forward draws other random numbers"},
        Wrong{"generator", 3, WithGeneratorNotPutBack(),
              "after backward other random numbers are drawn"},
        Wrong{"output", 3, WithOtherOutput(), "outputs differ by "}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trainsys
