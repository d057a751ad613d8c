// What a training step asks of a data-parallel wrapper.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace trainsys {

inline constexpr char kNothingToFinish[] =
    "FinishGradientSync: no forward began outside NoSync since the last one, "
    "so there is nothing to finish; call BeginForward before the forward of "
    "the last micro-step, outside NoSync";

// Averages gradients over ranks. Three of them give the same bits: SimpleDDP,
// AsyncDDP and BucketedDDP.
//
// Threads: the rank's own thread.
//
// Example:
//   ddp.ZeroGrad();
//   ddp.BeginForward();
//   model->Loss(batch).backward();
//   ddp.FinishGradientSync();  // p.grad() is now the mean over ranks
//   optimizer.Step();
class DataParallel {
 public:
  virtual ~DataParallel() = default;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Those that require a gradient, in registration order, tied ones once.
  virtual const std::vector<at::Tensor>& parameters() const = 0;

  // Before each forward. Here and only here it is read whether a NoSync lives:
  // if so, the backwards up to the next BeginForward add to this rank's
  // gradients and send nothing. Under NoGradGuard it posts nothing, so
  // evaluation needs no care.
  virtual void BeginForward() = 0;

  // Blocks until the gradients are the means over ranks of what each rank has
  // accumulated since its last one. Between backward and here gradients are on
  // their way, and may be undefined: who clips or scales them does so after it.
  // Errors: Error if the last forward began under NoSync, or none began.
  virtual void FinishGradientSync() = 0;

  // Bytes of the gradients' storages as they are now, padding included.
  virtual int64_t GradientBytes() const;

  // Drops the gradients, and with them the micro-steps that have added to them
  // (who drops gradients otherwise leaves these counted): undefined until the
  // next backward. A tensor that was p.grad() before may be overwritten by it:
  // clone() what is to be kept.
  virtual void ZeroGrad() {
    for (const at::Tensor& p : parameters()) p.mutable_grad().reset();
  }

 protected:
  DataParallel() = default;
  bool HasNoSync() const { return num_no_sync_ > 0; }

 private:
  friend class NoSync;
  int num_no_sync_ = 0;  // alive
};

// While it lives, forwards begin without communication. Nests.
//
// Example: four micro-steps, of which the last one averages their sum.
//   for (int i = 0; i < 4; ++i) {
//     std::optional<NoSync> quiet;
//     if (i < 3) quiet.emplace(ddp);
//     ddp.BeginForward();
//     (model->Loss(micro_batch[i]) / 4).backward();
//   }
//   ddp.FinishGradientSync();
class NoSync {
 public:
  explicit NoSync(DataParallel& ddp) : ddp_(ddp) { ++ddp_.num_no_sync_; }
  ~NoSync() { --ddp_.num_no_sync_; }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  DataParallel& ddp_;
};

}  // namespace trainsys
