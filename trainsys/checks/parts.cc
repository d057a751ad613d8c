#include "trainsys/checks/parts.h"

#include <utility>

#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/zero/zero_optimizer.h"

namespace trainsys {

Parts OurParts() {
  return {[](torch::nn::Module& module, collectives::Communicator& comm,
             int64_t bucket_bytes) {
            return std::make_unique<BucketedDDP>(
                module, comm, BucketedDDPOptions{.bucket_bytes = bucket_bytes});
          },
          [](std::vector<at::Tensor> parameters,
             collectives::Communicator& comm, const AdamWOptions& options) {
            return std::make_unique<ZeROOptimizer>(std::move(parameters), comm,
                                                   options);
          },
          Checkpointed()};
}

}  // namespace trainsys
