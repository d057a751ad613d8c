// A Communicator with one thing broken on purpose.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/communicator.h"
#include "trainsys/checks/checks.h"

namespace trainsys {

// Forwards everything to another communicator, but for what `fault` breaks.
class FaultyCommunicator final : public collectives::Communicator {
 public:
  // Lifetime: `inner` outlives it.
  FaultyCommunicator(collectives::Communicator& inner, Fault fault)
      : inner_(inner), fault_(fault) {}
  FaultyCommunicator(std::unique_ptr<collectives::Communicator> inner,
                     Fault fault)
      : owned_(std::move(inner)), inner_(*owned_), fault_(fault) {}

  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  const std::string& channel() const override { return inner_.channel(); }
  collectives::Recorder& recorder() override { return inner_.recorder(); }
  std::unique_ptr<Communicator> Duplicate(std::string_view name) override;
  collectives::Work Post(collectives::Call call) override;

 private:
  std::unique_ptr<collectives::Communicator> owned_;
  collectives::Communicator& inner_;
  Fault fault_;
};

}  // namespace trainsys
