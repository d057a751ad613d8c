// Which rank of how many a process is, and where they meet.
#pragma once

#include <string>

namespace collectives {

struct World {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;  // on this host
  // Of the store that all ranks meet at.
  std::string address = "127.0.0.1";
  int port = 29500;
  // A launcher serves the store; else rank 0 does.
  bool has_agent_store = false;
  // How often the launcher has started these ranks again; keeps what one life
  // has left in the store apart from the next.
  int restarts = 0;
};

}  // namespace collectives
