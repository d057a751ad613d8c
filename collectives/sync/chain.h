// A list without end, whose nodes are used again once everybody is past them.
#pragma once

#include <memory>
#include <vector>

#include "collectives/sync/claim.h"
#include "collectives/sync/primitives.h"

namespace collectives {

template <typename Node>
class Chain;

// What a node of a Chain has, as its member `link`.
template <typename Node>
class ChainLink {
 private:
  friend class Chain<Node>;
  sync::atomic<Node*> next_{nullptr};
  sync::atomic<int> holders_{0};
  Node* spare_ = nullptr;  // the next among the spare ones
};

// Each of `parties` walks the list at its own speed with After, and releases
// each node once, when it has asked for the one after it, until it leaves.
// Whoever releases a node last makes it spare.
//
//   a party                    another party            the next maker
//   -------                    -------------            --------------
//   renew a node
//   link it          (I) --->  After                (H)
//                              use it
//   use it                     Release              (G)
//   Release is last  (G)
//   make it spare    (R) ---------------------------->  take it        (S)
//
// Node has: a constructor from int (parties), `ChainLink<Node> link`, and
// Renew(const Node* before), which makes it as new, to follow `before`.
// Threads: any thread; the holder of a node may call After with it.
template <typename Node>
class Chain {
 public:
  explicit Chain(int parties) : parties_(parties), holders_(parties) {
    first_ = Make(nullptr);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  // Held by every party from the start, as every node is.
  Node& first() { return *first_; }

  // Out of memory in here ends the process: half made, nobody could go on.
  Node& After(Node& node) noexcept {
    for (;;) {
      // (H) acquire, pairs with (I): the node is made.
      Node* next = node.link.next_.load(sync::memory_order_acquire);
      if (next != nullptr) return *next;
      if (!making_.TryTake()) {
        sync::Yield();  // another thread makes it now
        continue;
      }
      // Relaxed: the claim has shown what its last holder linked.
      next = node.link.next_.load(sync::memory_order_relaxed);
      if (next == nullptr) {
        next = Make(&node);
        // (I) release, pairs with (H): publishes the node.
        node.link.next_.store(next, sync::memory_order_release);
      }
      making_.Release();
      return *next;
    }
  }

  // A party walks no further than `node`, which it holds, and releases it with
  // all that follow.
  void Leave(Node& node) noexcept {
    while (!making_.TryTake()) sync::Yield();
    --holders_;
    for (Node* at = &node; at != nullptr;) {
      // Relaxed: the claim has shown what its last holder linked.
      Node* const next = at->link.next_.load(sync::memory_order_relaxed);
      Release(*at);
      at = next;
    }
    making_.Release();
  }

  // One holder more. Relaxed: whoever adds one is a holder.
  void Hold(Node& node) {
    node.link.holders_.fetch_add(1, sync::memory_order_relaxed);
  }

  void Release(Node& node) {
    // (G) acq_rel, pairs with itself: the last holder sees what every other
    // did with the node before it is used again.
    if (node.link.holders_.fetch_sub(1, sync::memory_order_acq_rel) != 1) {
      return;
    }
    // Relaxed: a first guess.
    Node* spare = spare_.load(sync::memory_order_relaxed);
    do {
      node.link.spare_ = spare;
      // (R) release, pairs with (S): publishes the node and where it leads.
    } while (!spare_.compare_exchange_weak(
        spare, &node, sync::memory_order_release, sync::memory_order_relaxed));
  }

 private:
  // Under the claim. Nobody else takes a spare node meanwhile, so that what is
  // read from the topmost holds as long as it is the topmost.
  Node* TakeSpare() {
    // (S) acquire, pairs with (R): reads where the node leads.
    Node* spare = spare_.load(sync::memory_order_acquire);
    // (S) acquire, pairs with (R): a failed exchange has found another node.
    // Relaxed where it succeeds: it finds the node that was read before.
    while (spare != nullptr &&
           !spare_.compare_exchange_weak(spare, spare->link.spare_,
                                         sync::memory_order_relaxed,
                                         sync::memory_order_acquire)) {
    }
    return spare;
  }

  Node* Make(const Node* before) {
    Node* node = TakeSpare();
    if (node == nullptr) {
      nodes_.push_back(std::make_unique<Node>(parties_));
      node = nodes_.back().get();
    }
    // Relaxed, both: published by (I).
    node->link.next_.store(nullptr, sync::memory_order_relaxed);
    node->link.holders_.store(holders_, sync::memory_order_relaxed);
    node->Renew(before);
    return node;
  }

  const int parties_;  // at the start
  int holders_;        // that have not left; under making_
  Node* first_ = nullptr;
  Claim making_;                              // of who makes a node
  std::vector<std::unique_ptr<Node>> nodes_;  // all there are; under making_
  sync::atomic<Node*> spare_{nullptr};
};

}  // namespace collectives
