// SPDX-License-Identifier: Apache-2.0
// Who waits for whom in v7: a model of its block, with the barriers of `gpu/kernels/v7_block.cuh` and, of what lies in
// shared memory, its name and its chunk's number. Warps are coroutines, and so is each request to the copy engine. A
// scheduler picks who goes on, in orders that a device would not show in years. Where the protocol is wrong, in some of
// them what is read is not what was wanted, or nobody can go on.
//
// What one writes all see at once: fences are not modelled. A warp arrives as one. Sequences are not modelled either:
// chunks follow one another, and some have rows beyond an end.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/plan.hpp"
#include "reference/core/random.hpp"

namespace delta::gpu {
namespace {

// ---------------------------------------------------------------- coroutines

/// Until the bits of *value under the mask are as wanted; without a value, whenever the scheduler likes.
struct Until {
  const unsigned* value = nullptr;
  unsigned mask = 0, wanted = 0;
};
constexpr Until kAnyTime{};
Until none(const unsigned& pending) { return {&pending, ~0u, 0}; }

/// A coroutine that the scheduler resumes.
class Actor {
 public:
  struct promise_type {
    Until until;
    Actor get_return_object() { return Actor(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always await_transform(Until what) noexcept {  // also if it holds already: others may be faster
      until = what;
      return {};
    }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  bool done() const { return handle().done(); }
  bool can_go_on() const {
    const Until& until = handle().promise().until;
    return !until.value || (*until.value & until.mask) == until.wanted;
  }
  void go_on() const { handle().resume(); }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  struct Destroy {
    void operator()(void* frame) const { Handle::from_address(frame).destroy(); }
  };
  explicit Actor(Handle handle) : frame_(handle.address()) {}
  Handle handle() const { return Handle::from_address(frame_.get()); }
  std::unique_ptr<void, Destroy> frame_;
};

// ---------------------------------------------------------------- what a block has

/// A phase completes when so many have arrived, and all bytes that are expected.
struct Barrier {
  unsigned arrivals, pending = arrivals, bytes = 0, phase = 0;
  void arrive() { --pending, complete(); }
  void expect_bytes() { ++bytes; }
  void bring_bytes() { --bytes, complete(); }
  void complete() {
    if (pending == 0 && bytes == 0) pending = arrivals, ++phase;
  }
  /// Until phase n has completed. Of n only the last bit is known: to a warp that is two phases late it looks as if
  /// phase n had not.
  Until wait(unsigned n) const { return {&phase, 1, ~n & 1}; }
  /// A named barrier: arrives, and waits for the others.
  Until meet() {
    const unsigned n = phase;
    arrive();
    return wait(n);
  }
};

/// Places that chunks take in turns, by the chunk's number.
template <class T> class Places {
 public:
  explicit Places(unsigned count, const T& each = {}) : count(count), all_(count, each) {}
  T& operator[](unsigned n) { return all_[n % count]; }
  const unsigned count;

 private:
  std::vector<T> all_;
};

/// What lies somewhere, and of which chunk.
struct Content {
  char what = '-';  ///< as it is called in Block; ~: on its way
  unsigned n = 0;
  bool operator==(const Content&) const = default;
  std::string text() const { return std::string(1, what) + " of " + std::to_string(n); }
};
using Tile = std::array<Content, 4>;  ///< a part for each of four warps
using Tiles = std::array<Tile, 2>;    ///< of K and Q, or of two warpgroups

/// v7's; with a mistake planted, another one.
struct Protocol {
  unsigned stages = V7Places::kStages, scored = V7Places::kScored, known = V7Places::kKnown, ahead = V7Places::kAhead;
  unsigned waited_for = V7Places::kWaitedFor, turns = V7Places::kTeams;  ///< barriers, of `finished` and of `turn`
  unsigned asks_for_chunk_1 = 0;                                         ///< the team that does, once chunk 0 has come
  bool waits_for_three_before = true, waits_for_two_before = true, waits_for_last = true;  ///< until they are finished
  bool waits_for_stores = true, waits_for_last_store = true;
  bool waits_for_given = true, even_warps_wait_for_three_before = true, inverts_before_ready = true;
  bool meets_for_numbers = true, meets_to_invert = true, chain_waits_for_zeros = true;
};

/// A block, from its first chunk to its last.
class Block {
 public:
  Block(const Protocol& protocol, Random& draw) : protocol(protocol), random(draw) {
    for (unsigned warp = 0; warp < 4; ++warp)
      for (unsigned i = 0; i < 2; ++i) start(carry(i, warp)), start(prepare(i, warp));
  }
  /// The first that can go on does; now and then it gets another place in the order. So the last one waits while the
  /// others do all they can without it, which they would not if each were as likely as the next to go on.
  /// \return  what went wrong; empty: nothing
  std::string run() {
    while (!actors.empty() && failure.empty()) {
      const auto next = std::ranges::find_if(actors, &Actor::can_go_on);
      if (next == actors.end()) return "nobody can go on";
      const auto place = next - actors.begin();
      Actor actor = std::move(*next);
      actors.erase(next);
      actor.go_on();
      if (actor.done()) continue;
      if (random.below(patience) == 0)
        start(std::move(actor));
      else
        actors.insert(actors.begin() + place, std::move(actor));
    }
    for (unsigned n = 0; n < chunks; ++n) expect(stored[n] == 8, "o of " + std::to_string(n) + " is not stored once");
    return failure;
  }

 private:
  static constexpr unsigned kTeams = V7Places::kTeams, kMost = 12;  ///< chunks
  const Protocol protocol;
  Random& random;
  const std::int64_t patience = std::int64_t{1} << random.below(10);  ///< steps, on average, that an order lasts
  const unsigned chunks = static_cast<unsigned>(random.below(kMost + 1));
  const std::uint64_t ends = random.bits() & random.bits();  ///< a bit a chunk: it has rows beyond an end
  std::vector<Actor> actors;                                 ///< in the order in which they may go on
  std::string failure;

  Places<Tiles> keys{protocol.stages};                    ///< K; k: with zeros beyond the end. And Q
  Places<Tiles> values{kTeams};                           ///< V; o in its place
  Places<Tile> scores{protocol.scored}, squares{kTeams};  ///< P; L, then A
  Places<Content> given{protocol.known}, numbers{protocol.known}, factors{protocol.known};  ///< g; N; F
  Places<Content> known{protocol.ahead};                                                    ///< c: left, and where
  Places<Barrier> full{protocol.stages, Barrier{1}}, value_full{kTeams, Barrier{1}}, ready{kTeams, Barrier{4}},
      turn{protocol.turns, Barrier{4}}, finished{protocol.waited_for, Barrier{8}}, team_barrier{kTeams, Barrier{4}};
  Barrier block_barrier{16};
  Places<unsigned> stores{kTeams}, copies{protocol.known};  ///< that are asked for and not done
  Places<unsigned> stored{kMost};                           ///< warps' parts of o
  unsigned warps = 16;                                      ///< that have not left

  void start(Actor actor) {
    const auto place = random.below(static_cast<std::int64_t>(actors.size()) + 1);
    actors.insert(actors.begin() + place, std::move(actor));
  }
  void expect(bool holds, const std::string& otherwise) {
    if (!holds && failure.empty()) failure = otherwise;
  }
  void read(const Content& from, char what, unsigned n) {
    const Content wanted{what, n};
    if (from != wanted) expect(false, wanted.text() + " is wanted, but here is " + from.text());
  }
  void read(const Tile& from, char what, unsigned n) {
    for (const Content& part : from) read(part, what, n);
  }
  void read(const Tiles& from, char what, unsigned n) {
    for (const Tile& tile : from) read(tile, what, n);
  }
  bool has_end(unsigned n) const { return ends >> n & 1; }
  char K(unsigned n) const { return has_end(n) ? 'k' : 'K'; }  ///< as a product wants to find it
  static Until wait(Places<Barrier>& barriers, unsigned n) { return barriers[n].wait(n / barriers.count); }

  // ---------------------------------------------------------------- the copy engine

  Actor bring(Tile& to, Content what, Barrier& counted_by) {
    to.fill(what);
    counted_by.bring_bytes();
    co_return;
  }
  Actor store(unsigned n) {
    expect(warps > 0, "the block has left before o is read");
    read(values[n], 'o', n);
    stored[n] += 8, --stores[n];
    co_return;
  }
  Actor copy(unsigned n) {
    given[n] = {'g', n}, --copies[n];
    co_return;
  }

  // ---------------------------------------------------------------- a team

  bool is_left(unsigned n) {
    read(known[n], 'c', n);
    return n < chunks;
  }
  void load(Tiles& to, char what, unsigned n, Barrier& counted_by) {
    if (!is_left(n)) return;
    for (Tile& tile : to) {
      tile.fill({'~', n});
      counted_by.expect_bytes();
      start(bring(tile, {what, n}, counted_by));
    }
    counted_by.arrive();
  }
  void load_keys(unsigned n) { load(keys[n], 'K', n, full[n]); }
  void load_values(unsigned n) { load(values[n], 'V', n, value_full[n]); }
  void store_outputs(unsigned n) {
    if (is_left(n) && !has_end(n)) ++stores[n], start(store(n));
  }
  void load_inputs(unsigned n) {
    if (is_left(n)) given[n] = {'~', n}, ++copies[n], start(copy(n));
  }
  void sum(unsigned n) {
    if (is_left(n)) read(given[n], 'g', n);
    numbers[n] = {'N', n}, factors[n] = {'F', n};
  }
  void clear_rows(unsigned n, unsigned warp) {
    for (Tile& tile : keys[n]) read(tile[warp], 'K', n), tile[warp] = {'k', n};
  }

  Actor prepare(unsigned team, unsigned warp) {
    unsigned n = team;
    Barrier& barrier = team_barrier[team];
    // before the block meets
    if (warp < 3) known[n + kTeams * warp] = {'c', n + kTeams * warp};
    co_await barrier.meet();
    if (warp == 0) load_inputs(n);
    if (warp == 2 && team == 0) load_keys(0), load_values(0);
    co_await block_barrier.meet();
    if (warp == 0) {
      co_await none(copies[n]);
      sum(n);
    } else if (warp == 2) {
      load_inputs(n + kTeams);
      if (team == protocol.asks_for_chunk_1 && is_left(1)) {
        co_await wait(full, 0);
        load_keys(1);
        co_await kAnyTime;
        load_values(1);
      }
    }
    for (; is_left(n); n += kTeams) {
      co_await wait(full, n);
      if (has_end(n)) {
        clear_rows(n, warp);
        co_await barrier.meet();  // the zeros beyond the end are there
      }
      read(keys[n], K(n), n);
      if (protocol.meets_for_numbers) co_await barrier.meet();
      read(numbers[n], 'N', n);
      if (n >= 3 && protocol.waits_for_three_before && (warp % 2 == 1 || protocol.even_warps_wait_for_three_before))
        co_await wait(finished, n - 3);
      scores[n][warp] = {'P', n};
      co_await kAnyTime;
      read(keys[n], K(n), n), read(numbers[n], 'N', n);
      if (n >= 2 && protocol.waits_for_two_before) co_await wait(finished, n - 2);
      if (warp == 0) {
        load_keys(n + kTeams);
        if (n >= kTeams) store_outputs(n - kTeams);
      }
      co_await kAnyTime;
      squares[n][warp] = {warp % 2 == 1 ? 'L' : 'A', n};  // what warps 1 and 3 have is not all inverted
      if (warp == 0 && n >= kTeams) {
        if (protocol.waits_for_stores) co_await none(stores[n]);
        load_values(n);
      }
      if (warp == 2 && protocol.waits_for_given) co_await none(copies[n + kTeams]);
      if (protocol.meets_to_invert) co_await barrier.meet();
      if (!protocol.inverts_before_ready) ready[n].arrive();
      co_await kAnyTime;
      if (warp % 2 == 1) {
        read(squares[n][warp - 1], 'A', n), read(squares[n][warp], 'L', n);
        squares[n][warp] = {'A', n};
      }
      if (protocol.inverts_before_ready) ready[n].arrive();
      co_await kAnyTime;
      if (warp == 0) sum(n + kTeams);
      if (warp == 2) load_inputs(n + 2 * kTeams), known[n + 3 * kTeams] = {'c', n + 3 * kTeams};
    }
    if (warp == 0 && n >= kTeams) {
      if (protocol.waits_for_last) co_await wait(finished, n - kTeams);
      store_outputs(n - kTeams);
      if (protocol.waits_for_last_store) co_await none(stores[n]);
    }
    --warps;
  }

  // ---------------------------------------------------------------- the chain

  Actor carry(unsigned group, unsigned warp) {
    co_await block_barrier.meet();
    for (unsigned n = 0; n < chunks; ++n) {
      Content& value = values[n][group][warp];
      co_await wait(full, n);
      co_await wait(value_full, n);
      if (has_end(n) && protocol.chain_waits_for_zeros) co_await wait(ready, n);
      if (group == 1) co_await wait(turn, n);
      read(keys[n], K(n), n), read(value, 'V', n);
      if (group == 0) turn[n].arrive();
      co_await wait(ready, n);
      read(factors[n], 'F', n), read(squares[n], 'A', n);
      co_await kAnyTime;
      read(keys[n], K(n), n), read(scores[n], 'P', n);
      value = {'o', n};
      co_await kAnyTime;
      read(value, 'o', n);
      if (has_end(n)) ++stored[n];  // by the warp itself
      finished[n].arrive();
    }
    --warps;
  }
};

// ---------------------------------------------------------------- schedules

/// Tries schedules until one fails. \return  what went wrong; empty: nothing in 10,000
std::string first_failure(const Protocol& protocol) {
  for (std::uint64_t seed = 0; seed < 10000; ++seed) {
    Random random(seed);
    if (std::string failure = Block(protocol, random).run(); !failure.empty()) return failure;
  }
  return {};
}

TEST(Protocol, HoldsInAnyOrder) { EXPECT_EQ(first_failure({}), ""); }

struct Mistake {
  const char* name;
  Protocol protocol;
};
class Planted : public testing::TestWithParam<Mistake> {};

TEST_P(Planted, Shows) { EXPECT_NE(first_failure(GetParam().protocol), ""); }

INSTANTIATE_TEST_SUITE_P(
    Mistakes, Planted,
    testing::Values(Mistake{"TheSecondTeamWaitsForTheFirstChunk", {.asks_for_chunk_1 = 1}},
                    Mistake{"SquaresAndTilesGiveWayUnfinished", {.waits_for_two_before = false}},
                    Mistake{"PGivesWayUnfinished", {.waits_for_three_before = false}},
                    Mistake{"PGivesWayUnfinishedToTwoWarps", {.even_warps_wait_for_three_before = false}},
                    Mistake{"DecaysAreSummedUpBeforeTheyAreThere", {.waits_for_given = false}},
                    Mistake{"ReadyBeforeAllIsInverted", {.inverts_before_ready = false}},
                    Mistake{"TheLastOIsStoredUnfinished", {.waits_for_last = false}},
                    Mistake{"VTakesThePlaceOfOBeforeThatIsRead", {.waits_for_stores = false}},
                    Mistake{"TheBlockLeavesBeforeOIsRead", {.waits_for_last_store = false}},
                    Mistake{"NumbersAreReadBeforeTheyAreThere", {.meets_for_numbers = false}},
                    Mistake{"AWarpInvertsWhatAnotherHasNotWritten", {.meets_to_invert = false}},
                    Mistake{"TheChainReadsBeyondTheEnd", {.chain_waits_for_zeros = false}},
                    Mistake{"TwoPlacesForKAndQ", {.stages = 2}}, Mistake{"TwoPlacesForP", {.scored = 2}},
                    Mistake{"TwoPlacesForNumbers", {.known = 2}}, Mistake{"SixPlacesForChunks", {.ahead = 6}},
                    Mistake{"TwoBarriersOfFinished", {.waited_for = 2}}, Mistake{"OneBarrierOfTurn", {.turns = 1}}),
    [](const auto& mistake) { return mistake.param.name; });

}  // namespace
}  // namespace delta::gpu
