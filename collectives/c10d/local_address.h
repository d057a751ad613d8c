// Which of this host's addresses others reach it by.
#pragma once

#include <string>

namespace collectives {

// The address that this host would use to reach `address`, a name or number:
// "127.0.0.1" for this host itself. Asks the routing table; sends nothing.
// Errors: Error, one line, if the name is unknown or there is no route.
std::string LocalAddressTowards(const std::string& address);

}  // namespace collectives
