#include "tests/protocols/model.h"

#include <iostream>
#include <vector>

namespace collectives {
namespace {

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ':');) parts.push_back(part);
  return parts;
}

// Says at the end how often the weakened order was used.
struct AskedFor {
  AskedFor() {
    const char* text = std::getenv("WEAKEN");
    if (!text) return;
    const std::vector<std::string> parts = Split(text);
    const auto from = parts.size() == 5 ? OrderNamed(parts[3]) : std::nullopt;
    const auto to = parts.size() == 5 ? OrderNamed(parts[4]) : std::nullopt;
    if (!from || !to) {
      std::cerr << "WEAKEN=FILE:LINE:NTH:FROM:TO, not " << text << "\n";
      std::exit(2);
    }
    weakening = {parts[0], static_cast<unsigned>(std::stoi(parts[1])),
                 std::stoi(parts[2]), *from, *to};
  }
  ~AskedFor() {
    if (!weakening) return;
    std::cout << "weakened order used " << weakening->uses << " times\n";
  }

  std::optional<sync::Weakening> weakening;
};

}  // namespace

std::optional<rl::memory_order> OrderNamed(const std::string& name) {
  for (const rl::memory_order order :
       {rl::mo_relaxed, rl::mo_acquire, rl::mo_release, rl::mo_acq_rel,
        rl::mo_seq_cst}) {
    if (name == rl::format(order)) return order;
  }
  return std::nullopt;
}

sync::Weakening* WeakeningAskedFor() {
  static AskedFor asked;
  return asked.weakening ? &*asked.weakening : nullptr;
}

}  // namespace collectives
