// Every rank starts from the same module: the same structure, rank 0's values.
#pragma once

#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace torch::nn {
class Module;
}

namespace trainsys {

// Collectives: every rank calls them with its own copy of the module.

// Compares names, shapes, dtypes and requires_grad of parameters and buffers,
// which parameters are tied, and which layers make sparse gradients.
// `more`: further lines that must be the same.
// Errors: InvalidArgument on every rank if any rank differs from rank 0, with
// both sides of the first difference of the first such rank.
void CheckSameStructure(const torch::nn::Module& module,
                        collectives::Communicator& comm,
                        const std::vector<std::string>& more = {});

// Compares the bits of parameters and buffers.
// Errors: InvalidArgument on every rank if any differs from rank 0's, naming
// all that do, and the ranks.
void CheckSameValues(const torch::nn::Module& module,
                     collectives::Communicator& comm);

// Gives all ranks the buffers of rank `root`, as one broadcast. Where a buffer
// already has its bits nothing is written: a graph that has saved it stays
// valid.
void BroadcastBuffers(torch::nn::Module& module, int root,
                      collectives::Communicator& comm);

// Copies rank 0's parameters and buffers to all ranks.
void BroadcastFromRank0(torch::nn::Module& module,
                        collectives::Communicator& comm);

}  // namespace trainsys
