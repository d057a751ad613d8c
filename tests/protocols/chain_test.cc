// Guards sync/chain.h under every schedule: rounds that are walked at each
// rank's own speed and used again.
#include "collectives/sync/chain.h"

#include <gtest/gtest.h>

#include <climits>

#include "collectives/sync/hand_over.h"
#include "tests/protocols/model.h"

namespace collectives {
namespace {

int num_made = 0;  // nodes of this schedule; Relacy has one real thread
int least_made = INT_MAX;

struct Node {
  explicit Node(int) { ++num_made; }
  void Renew(const Node* before) {
    number = before ? before->number + 1 : 0;
    for (auto& m : marks) m = 0;
  }

  ChainLink<Node> link;
  Plain<int> number;
  Plain<int> marks[3];
};

// Each party marks its place in each node.
template <int kParties, int kNodes>
struct Walking : rl::test_suite<Walking<kParties, kNodes>, kParties> {
  Chain<Node> chain{kParties};

  Walking() { num_made = 1; }

  void thread(unsigned party) {
    Node* at = &chain.first();
    for (int i = 0; i < kNodes; ++i) {
      RL_ASSERT(at->number == i);
      RL_ASSERT(at->marks[party] == 0);
      at->marks[party] = 1;
      Node& next = chain.After(*at);
      RL_ASSERT(at->number == i);
      chain.Release(*at);
      at = &next;
    }
    RL_ASSERT(at->number == kNodes);
  }
  void after() { least_made = std::min(least_made, num_made); }
};

TEST(ChainModel, NobodySeesANodeRenewedWhileItUsesIt) {
  ExpectNoError<Walking<2, 2>>(2);
  ExpectNoError<Walking<3, 2>>(1);
  ExpectNoErrorAtRandom<Walking<2, 5>>();
  ExpectNoErrorAtRandom<Walking<3, 4>>();
}

TEST(ChainModel, NodesAreUsedAgain) {
  least_made = INT_MAX;
  ExpectNoErrorAtRandom<Walking<2, 5>>();
  EXPECT_LE(least_made, 3);
}

TEST(ChainModel, APlantedErrorIsFound) {
  const std::string file = "sync/chain.h";
  ExpectErrorWhere<Walking<2, 2>>(file, rl::mo_release, rl::mo_relaxed, 2);
  ExpectErrorWhere<Walking<2, 2>>(file, rl::mo_acq_rel, rl::mo_acquire, 2);
  ExpectErrorWhere<Walking<3, 2>>(file, rl::mo_acq_rel, rl::mo_release, 1);
}

// One party holds a node for a worker, which is none.
struct Holding : rl::test_suite<Holding, 3> {
  static constexpr int kNodes = 2;
  Chain<Node> chain{2};
  HandOver<Node*> work;

  void thread(unsigned index) {
    if (index == 2) return Work();
    Node* at = &chain.first();
    for (int i = 0; i < kNodes; ++i) {
      if (index == 0 && i == 0) Submit(*at);
      Node& next = chain.After(*at);
      chain.Release(*at);
      at = &next;
    }
  }
  void Submit(Node& node) {
    chain.Hold(node);
    work.Put(&node, 1);
  }
  void Work() {
    Node* node = nullptr;
    while (!work.Take(node, kEver)) {
    }
    RL_ASSERT(node->number == 0);
    node->marks[2] = 1;
    RL_ASSERT(node->number == 0);
    chain.Release(*node);
  }
};

TEST(ChainModel, ANodeHeldForAWorkerStays) { ExpectNoError<Holding>(1); }

// The last party leaves where it stands; the others go on.
template <int kParties, int kNodes>
struct Leaving : rl::test_suite<Leaving<kParties, kNodes>, kParties> {
  Chain<Node> chain{kParties};

  void thread(unsigned party) {
    Node* at = &chain.first();
    const bool leaves = party == kParties - 1;
    for (int i = 0; i < (leaves ? 1 : kNodes); ++i) {
      RL_ASSERT(at->number == i);
      RL_ASSERT(at->marks[party] == 0);
      at->marks[party] = 1;
      Node& next = chain.After(*at);
      RL_ASSERT(at->number == i);
      chain.Release(*at);
      at = &next;
    }
    if (leaves) chain.Leave(*at);
  }
};

TEST(ChainModel, WhoLeavesTakesNoNodeFromTheOthers) {
  ExpectNoError<Leaving<2, 3>>(2);
  ExpectNoErrorAtRandom<Leaving<2, 6>>();
  ExpectNoErrorAtRandom<Leaving<3, 4>>();
}

}  // namespace
}  // namespace collectives
