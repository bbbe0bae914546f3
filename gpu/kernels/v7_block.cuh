// SPDX-License-Identifier: Apache-2.0
// How a block of v7 serves a head alone: what it has in shared memory, and who waits for whom.
//
// Two warpgroups, the chain, carry 64 rows of S each along the chunks of a sequence. Two teams of four warps prepare
// the chunks, number n by team n % 2. Who waits for what:
//   a team        for K and Q of its chunk (full); then it has the scores P and the squares of the chunk ready (ready)
//   a warpgroup   for K and Q (full) and V (value_full), the second one also until the first has multiplied S with them
//                 (turn); then for the squares, P and the factors (ready); then it is through with the chunk (finished)
// The turns keep the two apart: one multiplies while the other waits for what it has multiplied.
//
// The team of chunk n waits until the chain is through with n - 3 before it writes P, whose place that is; and with
// n - 2 before it writes squares and asks for tiles: K and Q of chunk n + 2 take the place of those of n - 2, V of
// chunk n that of its V, where the chain has left o, once the team has brought that away.
//
// Nobody may wait for a barrier that could be two phases on, which looks like none. So there are four of `finished`:
// the team of chunk n may still wait for n - 3 when the chain is through with n - 1, but not when it is through with
// n + 1, for that takes chunk n. Of the others there are as many as places, and a place is given to the next chunk only
// when the chain is through with the last. Who else waits for a barrier of the place has seen it by then, or the chain
// could not be through. Nor can the second warpgroup miss a turn, for the first gets V of n + 2 only when both are
// through with n. `tests/gpu/protocol.cpp` tries all this in many orders.
//
// Of a chunk with rows beyond the end the team clears those of K and Q, which a chain does not read before `ready`
// then, and each warp of a chain its channels of V.
#pragma once
#include "gpu/kernels/parts.cuh"
#include "gpu/kernels/tensor_maps.cuh"

namespace delta::gpu {

/// The same number, but nothing that is made of it is kept in registers from one place to the next: it is made anew.
__device__ inline unsigned anew(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// A chunk as the teams know it. The chain walks over the same ones, part by part.
struct Chunk {
  int left = 0;  ///< tokens of the sequence from here on; 0: there is no such chunk
  int head, key_head, batch, token;
  unsigned part;
  std::int64_t place;                                              ///< in the arrays of a trace
  __device__ int count() const { return min(left, int{kChunk}); }  ///< tokens of the chunk

  /// The first chunk of the first part, from that number on, that has any.
  __device__ static Chunk of_part(const Arguments& a, const Shape& shape, unsigned number) {
    for (; number < shape.parts; number += shape.clusters) {
      const Part p = find_part(a, shape, number);
      if (p.chunks > 0) return {p.length, p.head, p.key_head, p.batch, p.begin, number, p.place(a, 0)};
    }
    return {};
  }
  /// So many chunks on.
  __device__ Chunk next(const Arguments& a, const Shape& shape, int chunks) const {
    Chunk to = *this;
#pragma unroll 1
    for (; chunks > 0 && to.left > 0; --chunks) {
      to.left -= kChunk, to.token += kChunk, to.place += a.HV;
      if (to.left <= 0) to = of_part(a, shape, to.part + shape.clusters);
    }
    return to;
  }
};

/// What a chain multiplies with, a number a token. The norms of q_i and k_i are in it too.
struct TokenFactors {
  float output[kChunk];  ///< scale gamma_i: the share of S q_i in o_i
  float write[kChunk];   ///< beta_i gamma_C / gamma_i: the share of e_i k_i^T in the next S
  float read[kChunk];    ///< -c gamma_i: the share of S x_i in e_i
  float lambda[kChunk];  ///< S x_i = S k_i + lambda_i S q_i
  float gamma[4];        ///< [0]: gamma_C, the decay of the whole chunk; four, so that each begins at 16 bytes
};

/// What is given of a token, as it lies in memory.
struct TokenInputs {
  float gate[kChunk], beta[kChunk], lambda[kChunk];
};

/// What a team makes of it for itself.
struct TokenNumbers {
  float high[kChunk], low[kChunk];  ///< G_i, the sum of log decays, in powers of two: rounded, and the rest
  float beta[kChunk];               ///< 0 beyond the end
  float key_norm[kChunk], query_norm[kChunk], key_length[kChunk];  ///< 1 / |k_i|, 1 / |q_i|, |k_i|
  float columns[96];  ///< for blocks 1, 2, 3: beta_j times the decay from each token j before to the block's first
  __device__ static int column(int block) { return 8 * block * (block - 1); }  ///< where those of a block begin
};

/// Shared memory of a block. Tiles start at whole KB, for their pieces are exchanged by address.
template <int D> struct AloneShared : V7Places {
  /// Barriers, 8 bytes each: of a stage; of a team; of a chunk modulo `kWaitedFor`.
  static constexpr int kFull = 0, kReady = kFull + 8 * kStages, kValueFull = kReady + 8 * kTeams;
  static constexpr int kTurn = kValueFull + 8 * kTeams, kFinished = kTurn + 8 * kTeams;
  static constexpr int kChunks = 128, kGiven = kChunks + kAhead * static_cast<int>(sizeof(Chunk));
  static constexpr int kFactors = kGiven + kKnown * static_cast<int>(sizeof(TokenInputs));
  static constexpr int kNumbers = kFactors + kKnown * static_cast<int>(sizeof(TokenFactors));
  /// K of a stage, and Q behind it.
  static constexpr int kKey = (kNumbers + kKnown * static_cast<int>(sizeof(TokenNumbers)) + 1023) / 1024 * 1024;
  static constexpr int kQuery = D / 64 * kTileBytes, kStage = 2 * kQuery;
  static constexpr int kScores = kKey + kStages * kStage;
  /// Of a team, three squares of 32 x 32 numbers in fp32.
  enum Square { kA11, kMinusL21, kA22 };
  static constexpr int kSquares = kScores + kScored * kTileBytes, kSquareBytes32 = 32 * 128;
  static constexpr int kValue = kSquares + kTeams * 3 * kSquareBytes32;  ///< V of a warpgroup, two places
  static_assert(kFinished + 8 * kWaitedFor <= kChunks && kGiven % 16 == 0 && kKey % 1024 == 0 && kStages % kTeams == 0);

  __host__ __device__ static constexpr int bytes(int warpgroups) { return kValue + kTeams * warpgroups * kTileBytes; }

  /// The barriers of chunk n: of its stage; one of its team's, named by where the first lies; its own.
  __device__ static std::uint32_t full(std::uint32_t at, unsigned n) { return at + kFull + 8 * (n % kStages); }
  __device__ static std::uint32_t of_team(std::uint32_t at, unsigned barrier, unsigned n) {
    return at + barrier + 8 * (n % kTeams);
  }
  __device__ static std::uint32_t finished(std::uint32_t at, unsigned n) {
    return at + kFinished + 8 * (n % kWaitedFor);
  }
  __device__ static void wait_full(std::uint32_t at, unsigned n) { wait(full(at, n), n / kStages & 1); }
  __device__ static void wait_for(std::uint32_t at, unsigned barrier, unsigned n) {
    wait(of_team(at, barrier, n), n / kTeams & 1);
  }
  __device__ static void wait_finished(std::uint32_t at, unsigned n) { wait(finished(at, n), n / kWaitedFor & 1); }

  // What chunk n has in shared memory.
  __device__ static int value(int warpgroups, int group, unsigned n) {
    return kValue + (static_cast<int>(n % kTeams) * warpgroups + group) * kTileBytes;
  }
  __device__ static Chunk& chunk(unsigned char* block, unsigned n) {
    return reinterpret_cast<Chunk*>(block + kChunks)[n % kAhead];
  }
  __device__ static TokenInputs& given(unsigned char* block, unsigned n) {
    return reinterpret_cast<TokenInputs*>(block + kGiven)[n % kKnown];
  }
  __device__ static TokenFactors& factors(unsigned char* block, unsigned n) {
    return reinterpret_cast<TokenFactors*>(block + kFactors)[n % kKnown];
  }
  __device__ static TokenNumbers& numbers(unsigned char* block, unsigned n) {
    return reinterpret_cast<TokenNumbers*>(block + kNumbers)[n % kKnown];
  }
};
static_assert(AloneShared<64>::bytes(1) == v7_shared(64, 64) && AloneShared<128>::bytes(2) == v7_shared(128, 128));

}  // namespace delta::gpu
