// A network link between two hosts of a test that delivers every packet late.
//
//   delay_link PID PID MILLISECONDS
//
// Makes an interface "delay0" in the network namespaces of two processes, then
// says "ready". What is sent into one comes out of the other that much later.
// When stdin closes, or has a line, it says "carried N packets" and ends, and
// the interfaces are gone. Needs root and /dev/net/tun.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxPacketBytes = 65536;
constexpr char kName[] = "delay0";

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "delay_link: %s: %s\n", what.c_str(),
               std::strerror(errno));
  std::exit(1);
}

int Open(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) Die("cannot open " + path);
  return fd;
}

// A socket that is the wire of a new interface of that process's host.
int OpenWire(const std::string& pid) {
  const int host = Open("/proc/" + pid + "/ns/net", O_RDONLY);
  if (setns(host, CLONE_NEWNET) != 0) Die("cannot enter process " + pid);
  close(host);
  const int wire = Open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::copy(std::begin(kName), std::end(kName), request.ifr_name);
  if (ioctl(wire, TUNSETIFF, &request) != 0) Die("cannot make an interface");
  return wire;
}

// One of a link's two directions.
class Lane {
 public:
  Lane(int from, int to, Clock::duration delay)
      : from_(from), to_(to), delay_(delay) {}

  void TakeIn() {
    char packet[kMaxPacketBytes];
    ssize_t bytes;
    while ((bytes = read(from_, packet, sizeof(packet))) > 0) {
      waiting_.push_back({Clock::now() + delay_, {packet, packet + bytes}});
    }
  }

  // All that is due. What the other end does not take is lost, as on a wire.
  void Deliver() {
    while (!waiting_.empty() && waiting_.front().due <= Clock::now()) {
      const std::vector<char>& packet = waiting_.front().bytes;
      if (write(to_, packet.data(), packet.size()) > 0) ++num_carried_;
      waiting_.pop_front();
    }
  }

  Clock::time_point NextDue() const {
    return waiting_.empty() ? Clock::time_point::max() : waiting_.front().due;
  }
  long num_carried() const { return num_carried_; }

 private:
  struct Packet {
    Clock::time_point due;
    std::vector<char> bytes;
  };

  const int from_;
  const int to_;
  const Clock::duration delay_;
  std::deque<Packet> waiting_;
  long num_carried_ = 0;
};

// Until a packet comes or is due. False once stdin has something.
bool WaitForMore(int a, int b, Clock::time_point due) {
  pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {a, POLLIN, 0}, {b, POLLIN, 0}};
  timespec time{};
  if (due != Clock::time_point::max()) {
    const auto left = std::max(due - Clock::now(), Clock::duration::zero());
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    time.tv_sec = seconds.count();
    time.tv_nsec = std::chrono::nanoseconds(left - seconds).count();
  }
  const bool has_due = due != Clock::time_point::max();
  if (ppoll(fds, 3, has_due ? &time : nullptr, nullptr) < 0) Die("cannot poll");
  return fds[0].revents == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: delay_link PID PID MILLISECONDS\n");
    return 2;
  }
  const int a = OpenWire(argv[1]);
  const int b = OpenWire(argv[2]);
  const auto delay = std::chrono::milliseconds(std::atoi(argv[3]));
  Lane there(a, b, delay);
  Lane back(b, a, delay);
  std::puts("ready");
  std::fflush(stdout);
  while (WaitForMore(a, b, std::min(there.NextDue(), back.NextDue()))) {
    there.TakeIn();
    back.TakeIn();
    there.Deliver();
    back.Deliver();
  }
  std::printf("carried %ld packets\n",
              std::min(there.num_carried(), back.num_carried()));
  return 0;
}
