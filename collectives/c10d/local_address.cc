#include "collectives/c10d/local_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "collectives/errors.h"

namespace collectives {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses Resolve(const std::string& name) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // A datagram socket needs some port; none is used.
  const int code = getaddrinfo(name.c_str(), "9", &hints, &found);
  if (code != 0) {
    throw Error("cannot find the address of '" + name +
                "': " + gai_strerror(code));
  }
  return {found, &freeaddrinfo};
}

struct Socket {
  explicit Socket(const addrinfo& a)
      : fd(socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC, a.ai_protocol)) {}
  ~Socket() {
    if (fd >= 0) close(fd);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  const int fd;
};

}  // namespace

std::string LocalAddressTowards(const std::string& address) {
  const Addresses addresses = Resolve(address);
  const Socket socket(*addresses);
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  auto* name = reinterpret_cast<sockaddr*>(&own);
  // Connecting a datagram socket only looks up the route.
  if (connect(socket.fd, addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      getsockname(socket.fd, name, &length) != 0) {
    throw Error("this host has no route to '" + address +
                "': " + std::strerror(errno));
  }
  char text[NI_MAXHOST] = "";
  getnameinfo(name, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

}  // namespace collectives
