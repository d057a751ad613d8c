#include "trainsys/recompute/checkpoint.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "trainsys/autograd/saved_tensor_hooks.h"
#include "trainsys/random/draws.h"
#include "trainsys/recompute/segment.h"
#include "trainsys/recompute/segment_run.h"

namespace trainsys {
namespace {

// Stands for one saved tensor of a segment: drops it in forward and fetches it
// from the second run in backward.
class DroppingHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit DroppingHooks(std::shared_ptr<Segment> segment)
      : segment_(std::move(segment)) {}

  ~DroppingHooks() override {
    if (is_packed_) segment_->Release(index_);
  }

  void call_pack_hook(const at::Tensor& t) override {
    version_ = torch::autograd::impl::version_counter(t);
    saved_version_ = version_.current_version();
    index_ = segment_->Drop(t);
    is_packed_ = true;
  }

  // libtorch leaves the version check to the hooks. The second run would read
  // a changed parameter without a word.
  at::Tensor call_unpack_hook() override {
    CheckVersion();
    const at::Tensor t = segment_->Get(index_);
    CheckVersion();  // the second run itself may have changed it
    return t;
  }

 private:
  void CheckVersion() const {
    TORCH_CHECK(version_.current_version() == saved_version_,
                "one of the variables needed for gradient computation has been "
                "modified by an inplace operation: saved tensor ",
                index_, " of ", NameOf(segment_->options()), " is at version ",
                version_.current_version(), "; expected version ",
                saved_version_, " instead");
  }

  const std::shared_ptr<Segment> segment_;
  c10::VariableVersion version_;  // of the dropped tensor, which may be gone
  uint32_t saved_version_ = 0;
  size_t index_ = 0;
  bool is_packed_ = false;
};

}  // namespace

struct FirstRun::Scopes {
  explicit Scopes(std::shared_ptr<Segment> s)
      : segment(std::move(s)),
        hooks([this] { return std::make_unique<DroppingHooks>(segment); }),
        draws(segment->draws()),
        run(*segment, hooks) {}

  ~Scopes() { segment->EndFirstRun(); }

  const std::shared_ptr<Segment> segment;
  const SavedTensorHookScope hooks;
  const DrawScope draws;
  const SegmentRun run;
};

FirstRun::FirstRun(CheckpointOptions options,
                   const std::vector<at::Tensor>& inputs, Again again)
    : scopes_(std::make_unique<Scopes>(std::make_shared<Segment>(
          std::move(options), inputs, std::move(again)))) {}

FirstRun::~FirstRun() = default;

}  // namespace trainsys
