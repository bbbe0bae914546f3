// SPDX-License-Identifier: Apache-2.0
// How the blocks of a cluster serve a head together, what each has in shared memory, and who waits for whom.
//
// A chain carries 64 or 128 rows of S along the chunks of a sequence (v6: of a part of one); a producer prepares, three
// chunks at a time, what the state does not enter. All walk over the same chunks in the same order. For every chunk
//   a chain's filler   finds a stage free, opens it to the producer, and asks the copy engine for Q, V and K
//   a producer's clerk fetches K and Q for its team, and sends what the team makes of them into the open stage: W
//                      and T, then P and the factors
//   the chain          uses the stage as soon as all of it is there; one of its warps tells the clerk that it is
// A stage is opened in two halves, for what a chunk needs first (W, T, Q, V) is used up before the rest.
#pragma once
#include "gpu/kernels/parts.cuh"
#include "gpu/kernels/tensor_maps.cuh"

namespace delta::gpu {

/// What the producer knows of a token and the chain multiplies with; the norms of q_i and k_i are in it too.
struct Factors {
  float output[kChunk];  ///< scale gamma_i: the share of S q_i in o_i
  float write[kChunk];   ///< beta_i gamma_C / gamma_i: the share of e_i k_i^T in the next S
  float gamma[4];        ///< [0]: gamma_C, the decay of the whole chunk; copies are multiples of 16 bytes
};

/// The numbers of the tokens of a chunk that a producer needs.
struct Numbers {
  float high[kChunk], low[kChunk];     ///< G_i, the sum of log decays, in powers of two: rounded, and the rest
  float beta[kChunk], lambda[kChunk];  ///< 0 beyond the end
  float read[kChunk];  ///< -gamma_j c (and the norm of k_j): the columns of A times these give -W from X
  float key_norm[kChunk], query_norm[kChunk];
  float since[kChunk];       ///< the decay from the first token of i's block of 16 to i
  float columns[3][kChunk];  ///< for blocks 1, 2, 3: beta_j times the decay from token j to the block's first

  /// The decay from token j to token i.
  __device__ float decay(int i, int j) const { return power_of_two((high[i] - high[j]) + (low[i] - low[j])); }
};

/// Shared memory of a chain. Tiles start at whole KB, for their pieces are exchanged by address. The barriers of a
/// stage say that what the producer sends is there (sent) and what the copy engine loads (full), that W, T, Q and V are
/// used up (used), that all of it is (free); one more of the block, tail, that what has rows beyond a sequence's end
/// has come and can be cleared. Where kTurn points each warp turns its rows of o^T round.
template <int D> struct ChainShared {
  static constexpr int kMaxDepth = kMostStages;
  static constexpr int kFull = 0, kSent = 8 * kMaxDepth, kUsed = 16 * kMaxDepth, kFree = 24 * kMaxDepth,
                       kTail = 32 * kMaxDepth;
  static constexpr int kFactors = 256, kTurn = 2560, kWarpTurn = kChunk * 32;
  static constexpr int kKeys = D / 64 * kTileBytes;
  static constexpr int kW = 0, kT = kKeys, kQuery = kT + kTileBytes, kKey = kQuery + kKeys, kP = kKey + kKeys,
                       kValue = kP + kTileBytes;
  static_assert(kFactors + kMaxDepth * sizeof(Factors) <= kTurn && kTail + 8 <= kFactors);

  /// Bytes of a stage, and where the first begins.
  __host__ __device__ static constexpr int stage(int warpgroups) { return kValue + warpgroups * kTileBytes; }
  __host__ __device__ static constexpr int stages(int warpgroups) {
    return (kTurn + 4 * warpgroups * kWarpTurn + 1023) / 1024 * 1024;
  }
  __host__ __device__ static constexpr int bytes(int warpgroups, int depth) {
    return stages(warpgroups) + depth * stage(warpgroups);
  }
};

/// Shared memory of a producer: the barriers of its teams, then each team's own. The barriers say that
///   loaded, emptied      K, Q and the numbers of a chunk are there; the team needs them no more
///   done, reusable       W, T and P are there; they may be overwritten
///   opened, rest_opened  all chains have room for W and T; for P and the factors
///   landed               all chains have received them
/// A team has one phase of each at a time. So a chain must not open a stage for a team's next chunk before it has used
/// the last: it has no more stages than there are teams.
template <int D> struct TeamShared {
  static constexpr int kFirst = 1024;
  static constexpr int kLoaded = 0, kEmptied = 8, kDone = 16, kReusable = 24, kOpened = 32, kRestOpened = 40,
                       kLanded = 48, kBarriers = 64;
  static constexpr int kKeys = D / 64 * kTileBytes, kTwoTiles = 2 * kTileBytes;
  static constexpr int kKey = 0, kQuery = kTwoTiles;                 ///< blocks of -A D_a over one of them
  static constexpr int kSolve = 2 * kTwoTiles;                       ///< ten blocks of L, then of A; two of A_22 L_21
  static constexpr int kW = 3 * kTwoTiles - kKeys, kT = kW + kKeys;  ///< -W over them, T behind it
  static constexpr int kP = kT + kTileBytes;
  static constexpr int kFactors = kP + kTileBytes;  ///< twice
  static constexpr int kNumbers = kFactors + 2 * static_cast<int>(sizeof(Factors));
  static constexpr int kBytes = (kNumbers + 2 * static_cast<int>(sizeof(Numbers)) + 1023) / 1024 * 1024;
  static constexpr int kAll = kFirst + kV5Teams * kBytes;
  __device__ static constexpr int barriers(int team) { return team * kBarriers; }
  __device__ static constexpr int memory(int team) { return kFirst + team * kBytes; }
};

/// The planner counts the same bytes.
template <int D>
constexpr bool kPlannedV5 = [] {
  for (int warpgroups : {1, 2})
    for (int depth = 2; depth <= kMostStages; ++depth)
      if (ChainShared<D>::bytes(warpgroups, depth) != v5_chain_shared(D, 64 * warpgroups, depth)) return false;
  return TeamShared<D>::kAll == kV5ProducerShared;
}();
static_assert(kPlannedV5<64> && kPlannedV5<128>);

/// The chunks of a cluster in the order in which all its blocks meet them: part after part, each from its beginning.
struct Walk : Part {
  const Arguments& a;
  const Shape& shape;
  unsigned next;  ///< the number of the part to come
  int chunk = 0;  ///< of the part

  __device__ Walk(const Arguments& arguments, const Shape& s, unsigned first) : a(arguments), shape(s), next(first) {}
  /// Goes so many chunks on, at first to that of the cluster's chunks; false where none is left.
  __device__ bool step(int chunks_on) {
    for (chunk += chunks_on; chunk >= chunks; next += shape.clusters) {
      if (next >= shape.parts) return false;
      chunk -= chunks;
      static_cast<Part&>(*this) = find_part(a, shape, next);
    }
    return true;
  }
  __device__ int token() const { return begin + chunk * kChunk; }                     ///< of the chunk's first row
  __device__ int count() const { return min(length - kChunk * chunk, int{kChunk}); }  ///< tokens of the chunk
};

/// Which producer of a cluster prepares a chunk, and which of its teams: they take turns.
struct Preparer {
  int producer = 0, team = 0;
  __device__ void next(const Shape& shape) {
    if (++producer < shape.producers) return;
    producer = 0;
    if (++team == kV5Teams) team = 0;
  }
  __device__ unsigned block(const Shape& shape) const { return static_cast<unsigned>(shape.chains + producer); }
};

/// Where a role is in a ring of stages: which one, and how often it came round.
struct Ring {
  int stage = 0;
  unsigned round = 0;
  __device__ void next(int depth) {
    if (++stage == depth) stage = 0, ++round;
  }
  __device__ void skip(int steps, int depth) {
    for (stage += steps; stage >= depth; stage -= depth) ++round;
  }
};

}  // namespace delta::gpu
