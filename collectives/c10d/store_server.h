// Serves the store that processes meet at.
#pragma once

#include <memory>

namespace collectives {

// Serves as long as it lives, on a port of this host that was free. Errors:
// Error if no port can be opened.
class StoreServer {
 public:
  StoreServer();
  ~StoreServer();

  int port() const;

 private:
  struct Holder;
  std::unique_ptr<Holder> holder_;
};

}  // namespace collectives
