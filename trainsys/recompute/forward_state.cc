#include "trainsys/recompute/forward_state.h"

#include <ATen/autocast_mode.h>
#include <torch/version.h>

namespace trainsys {
namespace {

#if TORCH_VERSION_MAJOR >= 2
c10::ScalarType AutocastDtype() {
  return at::autocast::get_autocast_dtype(at::kCPU);
}
void SetAutocastDtype(c10::ScalarType dtype) {
  at::autocast::set_autocast_dtype(at::kCPU, dtype);
}
#else
c10::ScalarType AutocastDtype() {
  return at::autocast::get_autocast_cpu_dtype();
}
void SetAutocastDtype(c10::ScalarType dtype) {
  at::autocast::set_autocast_cpu_dtype(dtype);
}
#endif

}  // namespace

ForwardState::ForwardState()
    : keys_(c10::impl::tls_local_dispatch_key_set()),
      autograd_(c10::AutogradState::get_tls_state()),
      autocast_dtype_(AutocastDtype()) {}

ForwardStateScope::ForwardStateScope(const ForwardState& state)
    : has_found_cache_(at::autocast::is_autocast_cache_enabled()) {
  c10::impl::_force_tls_local_dispatch_key_set(state.keys_);
  c10::AutogradState::set_tls_state(state.autograd_);
  SetAutocastDtype(state.autocast_dtype_);
  at::autocast::set_autocast_cache_enabled(false);
}

ForwardStateScope::~ForwardStateScope() {
  at::autocast::set_autocast_cache_enabled(has_found_cache_);
  SetAutocastDtype(found_.autocast_dtype_);
  c10::AutogradState::set_tls_state(found_.autograd_);
  c10::impl::_force_tls_local_dispatch_key_set(found_.keys_);
}

}  // namespace trainsys
