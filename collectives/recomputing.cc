#include "collectives/recomputing.h"

namespace collectives {
namespace {

// Written and read by its own thread only.
thread_local int recomputing_depth = 0;

}  // namespace

bool IsRecomputing() { return recomputing_depth > 0; }

RecomputingScope::RecomputingScope() { ++recomputing_depth; }

RecomputingScope::~RecomputingScope() { --recomputing_depth; }

}  // namespace collectives
