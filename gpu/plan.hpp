// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "gpu/deltaref_gpu.h"

namespace delta::gpu {

/// A refusal: the status that is returned and the sentence that explains it.
struct Refusal {
  deltaref_status status = DELTAREF_OK;
  std::string sentence;
  explicit operator bool() const { return status != DELTAREF_OK; }
};

inline constexpr int kChunk = 64;      ///< C of the tensor-core kernels
inline constexpr int kTile = 32;       ///< value channels of a block of v3
inline constexpr int kMostStages = 4;  ///< chunks that a block of v4's serial stage, or a chain of v5, holds at most

inline constexpr int kV5Teams = 3;  ///< of a producer of v5: warpgroups that prepare a chunk each

/// What a block of v7 has for so many chunks at a time. With fewer it goes wrong, as `tests/gpu/protocol.cpp` shows.
struct V7Places {
  static constexpr int kTeams = 2;            ///< squares and V: one place a team
  static constexpr int kStages = 2 * kTeams;  ///< K and Q. Each place is one team's, which so misses no phase of it
  static constexpr int kScored = 3;           ///< P
  static constexpr int kKnown = 2 * kTeams;   ///< numbers: those of a team's next chunk are made while it works
  static constexpr int kAhead = 8;  ///< where chunks are: at n a team finds n + 6, and n - 2 is needed no more
  static constexpr int kWaitedFor =
      4;  ///< barriers `finished`: n - 3 may be waited for when n - 1 is through. 3 would do
};

inline constexpr int kMostSegments = 64;  ///< that v6 cuts a sequence into

/// Tokens that the chunk slots are counted over.
std::int64_t tokens(const deltaref_gpu_problem& p);
std::int64_t sequences(const deltaref_gpu_problem& p);
/// Tokens of the longest sequence.
std::int64_t longest(const deltaref_gpu_problem& p);
/// Chunk slots: chunk c of sequence n has slot begin(n) / C + n + c, unique for any lengths.
std::int64_t slots(const deltaref_gpu_problem& p, std::int64_t chunk);

// ---------------------------------------------------------------- sizes, in bytes
// The kernels assert at compile time that these are what they use.

/// The smallest multiple of `unit` that holds n.
constexpr std::int64_t rounded_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

/// Shared memory of a block of v3 with chunk length C; `size` is the size of one number.
/// Q, K, W [C x d_k]; S [32 x d_k]; U~ [C x 32]; X K^T, Q K^T, H [C x C]; alpha, beta, lambda, gamma [C].
constexpr std::int64_t v3_shared(std::int64_t C, std::int64_t d_k, std::int64_t size) {
  return size * (3 * C * (d_k + 1) + kTile * (d_k + 1) + C * (kTile + 1) + 3 * C * (C + 1) + 4 * C);
}

inline constexpr std::int64_t kSquareBytes = 2 * kChunk * kChunk;                     ///< [C x C], 16 bits a number
constexpr std::int64_t tile_bytes(std::int64_t width) { return 2 * kChunk * width; }  ///< [C x width], so too

/// One chunk slot of one head in the workspace of v4.
struct V4Slot {
  std::int64_t inverse;  ///< N: ten blocks of 16 x 16 and their rests
  std::int64_t scores;   ///< P
  std::int64_t factors;  ///< five numbers a token, and the decay of the chunk for every key channel
  std::int64_t keys;     ///< decayed copies of K, Q and K, with a decay per channel
  constexpr std::int64_t bytes() const { return inverse + scores + factors + keys; }
};
constexpr V4Slot v4_slot(std::int64_t d_k, bool per_channel) {
  return {.inverse = 10 * 1024,
          .scores = kSquareBytes,
          .factors = 4 * (5 * kChunk + d_k),
          .keys = per_channel ? 3 * tile_bytes(d_k) : 0};
}

/// Shared memory of a block of v4's serial stage. A stage: K, Q (and K as it is written), N, P, factors, V; after all
/// stages, what the warps exchange for every 16 rows.
constexpr std::int64_t v4_shared(std::int64_t d_k, std::int64_t rows, bool per_channel, std::int64_t stages) {
  const std::int64_t keys = (per_channel ? 3 : 2) * tile_bytes(d_k),
                     factors = 4 * (5 * kChunk + (per_channel ? d_k : 4));
  const V4Slot slot = v4_slot(d_k, per_channel);
  return stages * (keys + slot.inverse + slot.scores + factors + tile_bytes(rows)) + rows / 16 * 512 * (d_k / 16 + 16);
}

/// Shared memory of a chain of v5: barriers, factors and o^T of a chunk; in a stage K, Q, W, T, P and V.
constexpr std::int64_t v5_chain_shared(std::int64_t d_k, std::int64_t rows, std::int64_t stages) {
  return rounded_up(2560 + tile_bytes(rows), 1024) +
         stages * (3 * tile_bytes(d_k) + 2 * kSquareBytes + tile_bytes(rows));
}

/// Shared memory of a producer of v5: barriers; for each of its teams K, Q and W with room for two tiles, T, P,
/// numbers.
inline constexpr std::int64_t kV5ProducerShared = 1024 + kV5Teams * (8 * kSquareBytes + 7 * 1024);

/// Shared memory of a block of v5, which may be either.
constexpr std::int64_t v5_shared(std::int64_t d_k, std::int64_t rows, std::int64_t stages) {
  return std::max(v5_chain_shared(d_k, rows, stages), kV5ProducerShared);
}

/// Matrices [d_v x d_k] of fp32 that v6 keeps of each head of each sequence: where segments start, but for the first,
/// and by what those in the middle multiply the state.
constexpr std::int64_t v6_matrices(std::int64_t segments) { return 2 * segments - 3; }
constexpr std::int64_t v6_matrix(std::int64_t d) { return 4 * d * d; }  ///< bytes of one

/// Shared memory of a block of v7: 15 KB of barriers, numbers and factors; K and Q of every stage; P three times; twice
/// three squares of 32 x 32 in fp32, and V.
constexpr std::int64_t v7_shared(std::int64_t d_k, std::int64_t d_v) {
  return 15 * 1024 + V7Places::kStages * 2 * tile_bytes(d_k) + V7Places::kScored * kSquareBytes +
         V7Places::kTeams * (3 * 32 * 128 + tile_bytes(d_v));
}

/// Clusters of so many blocks, each as large as a multiprocessor, that are resident at a time. A cluster lies within
/// one group of multiprocessors (GPC), and groups are not multiples of four or six: on an H200, which has 132, 66
/// clusters of two are resident, but 30 of four, and 16 of six at least.
constexpr std::int64_t resident_clusters(std::int64_t multiprocessors, std::int64_t blocks) {
  const std::int64_t lost = blocks == 4 ? 3 : blocks == 6 ? 6 : 0;
  return std::max(std::int64_t{0}, multiprocessors / blocks - lost);
}

// ---------------------------------------------------------------- decisions

/// Is the description sound? Says what is wrong otherwise.
Refusal check(const deltaref_gpu_problem& p);
/// Which kernel serves it on that device.
Refusal plan(const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device, deltaref_gpu_plan_t& out);

}  // namespace delta::gpu
