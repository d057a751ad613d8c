#include "collectives/recomputing.h"

#include <utility>

namespace collectives {
namespace {

// Written and read by its own thread only.
thread_local int recomputing_depth = 0;

}  // namespace

bool IsRecomputing() { return recomputing_depth > 0; }

RecomputingScope::RecomputingScope() { ++recomputing_depth; }

RecomputingScope::~RecomputingScope() { --recomputing_depth; }

NotRecomputingScope::NotRecomputingScope()
    : depth_(std::exchange(recomputing_depth, 0)) {}

NotRecomputingScope::~NotRecomputingScope() { recomputing_depth = depth_; }

}  // namespace collectives
