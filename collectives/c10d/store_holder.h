// The libtorch inside a Store; for collectives/c10d alone.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "collectives/c10d/store.h"

namespace collectives {

struct Store::Holder {
  c10::intrusive_ptr<c10d::Store> store;
};

}  // namespace collectives
