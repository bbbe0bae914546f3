// SPDX-License-Identifier: Apache-2.0
// The serial stage of v4: one pass over the chunks of a sequence with the state in registers, outputs included.
#pragma once
#include "gpu/kernels/inverse.cuh"
#include "gpu/kernels/launch.hpp"
#include "gpu/plan.hpp"

namespace delta::gpu {

/// Blocks (i, k <= i) of 16 x 16 and their rests, and bytes of both.
constexpr int kBlockPairs = 10, kBlockPair = 1024;
__host__ __device__ constexpr int block_pair(int i, int k) { return (i * (i + 1) / 2 + k) * kBlockPair; }

/// What the chunk-parallel stage leaves for one chunk of one head; C = 64.
///   N         (I + L_g)^{-1} - I, the ten 16 x 16 blocks on and below the diagonal, each twice: itself rounded and the
///             rest, in the registers in which the product with it wants them
///   P [C][C]  scale (H . Q K^T), lower
///   factors   five numbers a token, then the decay of the whole chunk (one, or one per key channel)
///   keys      only with a decay per channel: decayed copies of K (read), Q (output) and K (write), [C][d_k] each
template <int D, bool PerChannel> struct ChunkWorkspace {
  static constexpr std::int64_t kSize = v4_slot(D, PerChannel).bytes(), kP = v4_slot(D, PerChannel).inverse;
  static constexpr std::int64_t kTokens = kP + v4_slot(D, PerChannel).scores;
  static constexpr std::int64_t kKeys = kTokens + v4_slot(D, PerChannel).factors;
  static_assert(kP == kBlockPairs * kBlockPair);

  unsigned char* base;
  __device__ explicit ChunkWorkspace(void* workspace) : base(static_cast<unsigned char*>(workspace)) {}
  __device__ unsigned char* N(std::int64_t chunk) const { return base + chunk * kSize; }
  __device__ unsigned char* P(std::int64_t chunk) const { return N(chunk) + kP; }
  __device__ float* tokens(std::int64_t chunk) const { return reinterpret_cast<float*>(N(chunk) + kTokens); }
  __device__ void* keys(std::int64_t chunk) const { return N(chunk) + kKeys; }
};

/// The five numbers of token i: R_i = beta v_i - read_key (S k_i) - read_query (S q_i) is what the solve starts from,
/// output (S q_i) is what the old state gives to o_i, write z_i is what the new state takes along k_i.
enum Factor { kBeta, kReadKey, kReadQuery, kOutput, kWrite, kFactors };

/// Four warps are a team: it owns 16 M rows of S (d_v channels), of which warp w keeps the columns of its quarter of
/// d_k in fp32 accumulators, and of every chunk warp w computes the tokens 16 w .. 16 w + 15.
constexpr int kTeam = 4, kTeamThreads = 32 * kTeam;

/// Four more warps do nothing but fetch the next chunk: address arithmetic leaves the serial path.
constexpr int kFetchers = 128;

/// One block's shared memory: as many stages of what a chunk needs as fit, then what the warps of a team hand each
/// other, each piece as the A operand of the product that uses it (512 bytes for 16 rows x 16 columns).
template <int D, bool PerChannel> struct ChainMemory {
  static constexpr int kRowBytes = 2 * D, kTileBytes = kChunk * kRowBytes, kSquareBytes = kChunk * kChunk * 2;
  static constexpr int kKey = 0, kQuery = kTileBytes, kKeyOut = PerChannel ? 2 * kTileBytes : kKey;
  static constexpr int kN = (PerChannel ? 3 : 2) * kTileBytes, kP = kN + kBlockPairs * kBlockPair;
  static constexpr int kTokens = kP + kSquareBytes;
  static constexpr int kNumbers = kFactors * kChunk + (PerChannel ? D : 4);
  static constexpr int kValues = kTokens + 4 * kNumbers;
  static constexpr int kGroupValues = kChunk * 16 * 2;  // 64 tokens x 16 channels
  static constexpr int kOperand = 512;
  static constexpr int kState = 0, kRight = kState + D / 16 * kOperand, kRest = kRight + 4 * kOperand;
  static constexpr int kSolved = kRest + 4 * kOperand, kWritten = kSolved + 4 * kOperand;
  static constexpr int kGroupExchange = kWritten + 4 * kOperand;

  /// \param groups  groups of 16 rows in the block
  static __host__ __device__ constexpr int stage(int groups) { return kValues + groups * kGroupValues; }
  static __host__ __device__ constexpr int bytes(int groups, int stages) {
    return stages * stage(groups) + groups * kGroupExchange;
  }
};

/// The planner counts the same bytes.
template <int D, bool PerChannel>
constexpr bool kPlannedV4 = [] {
  for (int groups : {1, 2, 4})
    for (int stages = 2; stages <= kMostStages; ++stages)
      if (ChainMemory<D, PerChannel>::bytes(groups, stages) != v4_shared(D, 16 * groups, PerChannel, stages))
        return false;
  return v4_slot(D, PerChannel).factors == 4 * (kFactors * kChunk + D);
}();
static_assert(kPlannedV4<64, false> && kPlannedV4<128, false> && kPlannedV4<64, true> && kPlannedV4<128, true>);

__device__ inline void put_operand(unsigned char* to, const std::uint32_t (&a)[4]) {
  *reinterpret_cast<uint4*>(to + threadIdx.x % 32 * 16) = make_uint4(a[0], a[1], a[2], a[3]);
}
__device__ inline void get_operand(std::uint32_t (&a)[4], const unsigned char* from) {
  const uint4 x = *reinterpret_cast<const uint4*>(from + threadIdx.x % 32 * 16);
  a[0] = x.x, a[1] = x.y, a[2] = x.z, a[3] = x.w;
}

/// Works on transposes, S [rows x d_k] being the A operand:
/// \f[ R^\top = V^\top B - (S K^\top) D_a - (S Q^\top) D_b, \quad Z^\top = R^\top + R^\top N^\top, \quad
///     O^\top = (S Q^\top) D_f + Z^\top P^\top, \quad S \leftarrow \gamma_C S + (Z^\top D_w) K \f]
/// The solve starts from R in fp32 and only the strictly lower N goes through rounded operands; there R and N are sums
/// of two of them each, themselves rounded and the rest, and of the four products the smallest is left out. With one,
/// repeated keys (N has -1 beside the diagonal, and the z_i telescope) would sum up the roundings of every r_i in the
/// state. How many rows share a block changes no bit: each row's sums run in the same order whatever is beside it.
/// \tparam M  groups of 16 rows a team owns: more reuse what is read from shared memory, fewer fill more processors
/// \formula{F84}
template <class In, int D, bool PerChannel, int M>
__global__ void __launch_bounds__(M* kTeamThreads + kFetchers, M == 1 ? 2 : 1)
    chain(const Arguments a, const int stages) {
  using Memory = ChainMemory<D, PerChannel>;
  constexpr int kDepth = D / 16, kOwn = D / kTeam / 8,
                kRowBytes = Memory::kRowBytes;  // kOwn: tiles of 8 columns a warp owns
  extern __shared__ __align__(128) unsigned char memory[];
  const int thread = threadIdx.x, teams = (blockDim.x - kFetchers) / kTeamThreads;
  const int team = thread / kTeamThreads, warp = thread / 32 % kTeam, g = thread % 32 / 4, t = thread % 4;
  const int groups = teams * M, group = team * M;

  const int slices = a.d_v / 16 / groups;
  const std::int64_t lane = blockIdx.x / slices;
  const int head = static_cast<int>(lane % a.HV), first = static_cast<int>(blockIdx.x % slices) * groups * 16;
  const std::int64_t n = lane / a.HV;
  const Sequence s = a.sequence(n);
  const ChunkWorkspace<D, PerChannel> workspace(a.workspace);
  const std::int64_t slot = first_slot(a, n, kChunk);
  const std::int64_t chunks = (s.length + kChunk - 1) / kChunk;
  unsigned char* const exchange = memory + stages * Memory::stage(groups) + group * Memory::kGroupExchange;
  auto team_barrier = [&] { asm volatile("bar.sync %0, 128;\n" ::"r"(1 + team) : "memory"); };
  // Row and column of accumulator e of tile j of group m of the warp's quarter of S.
  auto row_of = [&](int m, int e) { return first + (group + m) * 16 + g + e / 2 * 8; };
  auto column_of = [&](int j, int e) { return (warp * kOwn + j) * 8 + 2 * t + e % 2; };

  auto fetch = [&](std::int64_t c) {
    const int thread = threadIdx.x - teams * kTeamThreads;
    const std::uint32_t stage = shared_address(memory) + static_cast<int>(c % stages) * Memory::stage(groups);
    const std::int64_t chunk = (slot + c) * a.HV + head, begin = c * kChunk;
    constexpr int kPieces = kRowBytes / 16;
    if constexpr (PerChannel) {
      const In* const keys = static_cast<const In*>(workspace.keys(chunk));
      for (int e = thread; e < 3 * kChunk * kPieces; e += kFetchers) {
        const int tile = e / (kChunk * kPieces), r = e / kPieces % kChunk, piece = e % kPieces;
        copy_async(stage + tile * Memory::kTileBytes + swizzled<kRowBytes>(r, piece), keys + e * 8);
      }
    } else {
      const In* const k = row<In>(a.k, s, begin, a.key_head(head));
      const In* const q = row<In>(a.q, s, begin, a.key_head(head));
      for (int e = thread; e < kChunk * kPieces; e += kFetchers) {
        const int r = e / kPieces, piece = e % kPieces;
        const bool there = begin + r < s.length;
        const int to = swizzled<kRowBytes>(r, piece);
        copy_async(stage + Memory::kKey + to, there ? k + r * a.k.stride_t + piece * 8 : k, there);
        copy_async(stage + Memory::kQuery + to, there ? q + r * a.q.stride_t + piece * 8 : q, there);
      }
    }
    const unsigned char *const N = workspace.N(chunk), *const P = workspace.P(chunk);
    for (int e = thread; e < kBlockPairs * kBlockPair / 16; e += kFetchers)
      copy_async(stage + Memory::kN + e * 16, N + e * 16);
    for (int e = thread; e < kChunk * 8; e += kFetchers)
      copy_async(stage + Memory::kP + swizzled<128>(e / 8, e % 8), P + e * 16);
    const float* const tokens = workspace.tokens(chunk);
    for (int e = thread; e < Memory::kNumbers / 4; e += kFetchers)
      copy_async(stage + Memory::kTokens + e * 16, tokens + e * 4);
    const In* const v = row<In>(a.v, s, begin, head) + first;
    for (int e = thread; e < kChunk * 2 * groups; e += kFetchers) {
      const int r = e / (2 * groups), piece = e % (2 * groups);
      const bool there = begin + r < s.length;
      copy_async(stage + Memory::kValues + piece / 2 * Memory::kGroupValues + swizzled<32>(r, piece % 2),
                 there ? v + r * a.v.stride_t + piece * 8 : v, there);
    }
  };

  if (team == teams) {  // the fetchers
    for (int c = 0; c < stages - 1; ++c) {
      if (c < chunks) fetch(c);
      commit_copies();
    }
    for (std::int64_t c = 0; c < chunks; ++c) {
      static_assert(kMostStages == 4);
      if (stages == 2)
        wait_copies<0>();
      else if (stages == 3)
        wait_copies<1>();
      else
        wait_copies<2>();
      __syncthreads();  // the stage has landed, the one before it is free
      if (c + stages - 1 < chunks) fetch(c + stages - 1);
      commit_copies();
    }
    wait_copies<0>();
    return;
  }

  float S[M][kOwn][4];
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int j = 0; j < kOwn; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        S[m][j][e] =
            a.initial_state
                ? static_cast<const float*>(a.initial_state)[a.state_index(lane, row_of(m, e), column_of(j, e))]
                : 0;
  auto publish_state = [&] {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int j = 0; j < kOwn; j += 2) {
        std::uint32_t left[4];
        as_operand<In>(left, S[m][j], S[m][j + 1]);
        put_operand(exchange + m * Memory::kGroupExchange + Memory::kState + (warp * kOwn + j) / 2 * Memory::kOperand,
                    left);
      }
  };
  publish_state();

  for (std::int64_t c = 0; c < chunks; ++c) {
    __syncthreads();  // the stage has landed, the state is published
    unsigned char* const stage = memory + static_cast<int>(c % stages) * Memory::stage(groups);
    const std::uint32_t at = shared_address(stage);
    const float* const factor = reinterpret_cast<const float*>(stage + Memory::kTokens);
    const std::int64_t chunk = (slot + c) * a.HV + head;

    float Z[M][2][4] = {}, O[M][2][4] = {};  // first S K^T and S Q^T [16 x 16 tokens]
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      std::uint32_t key[4], query[4];
      operand_rows<kRowBytes>(key, at + Memory::kKey, warp, k);
      operand_rows<kRowBytes>(query, at + Memory::kQuery, warp, k);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        std::uint32_t left[4];
        get_operand(left, exchange + m * Memory::kGroupExchange + Memory::kState + k * Memory::kOperand);
        mma<In>(Z[m][0], left, key[0], key[1]), mma<In>(Z[m][1], left, key[2], key[3]);
        mma<In>(O[m][0], left, query[0], query[1]), mma<In>(O[m][1], left, query[2], query[3]);
      }
    }

#pragma unroll
    for (int m = 0; m < M; ++m) {
      std::uint32_t v[4], right[4];  // V^T: rows (channels) g and g + 8, columns (tokens) 2 t and + 1 of two tiles
      const int l = thread % 32;
      load_matrices_transposed(v, at + Memory::kValues + (group + m) * Memory::kGroupValues +
                                      swizzled<32>(16 * warp + (l & 7) + (l >> 4) * 8, (l >> 3) & 1));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int token = 16 * warp + 8 * j + 2 * t;
        const float2 low = unpack<In>(v[2 * j]), high = unpack<In>(v[2 * j + 1]);
        const float V[4] = {low.x, low.y, high.x, high.y};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float* const f = factor + token + e % 2;
          Z[m][j][e] =
              f[kBeta * kChunk] * V[e] - f[kReadKey * kChunk] * Z[m][j][e] - f[kReadQuery * kChunk] * O[m][j][e];
          O[m][j][e] *= f[kOutput * kChunk];
        }
      }
      unsigned char* const to = exchange + m * Memory::kGroupExchange + warp * Memory::kOperand;
      as_operand<In>(right, Z[m][0], Z[m][1]);
      put_operand(to + Memory::kRight, right);
      rest_of_operand<In>(right, Z[m][0], Z[m][1]);
      put_operand(to + Memory::kRest, right);
    }
    team_barrier();

#pragma unroll
    for (int k = 0; k < kTeam; ++k) {  // Z^T = R^T + R^T N^T; N is zero beyond the warp's tokens
      if (k > warp) break;
      std::uint32_t b[4], b_rest[4];
      get_operand(b, stage + Memory::kN + block_pair(warp, k));
      get_operand(b_rest, stage + Memory::kN + block_pair(warp, k) + kBlockPair / 2);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        std::uint32_t right[4];
        const unsigned char* const from = exchange + m * Memory::kGroupExchange + k * Memory::kOperand;
        get_operand(right, from + Memory::kRest);
        mma<In>(Z[m][0], right, b[0], b[1]), mma<In>(Z[m][1], right, b[2], b[3]);
        get_operand(right, from + Memory::kRight);
        mma<In>(Z[m][0], right, b_rest[0], b_rest[1]), mma<In>(Z[m][1], right, b_rest[2], b_rest[3]);
        mma<In>(Z[m][0], right, b[0], b[1]), mma<In>(Z[m][1], right, b[2], b[3]);
      }
    }
#pragma unroll
    for (int m = 0; m < M; ++m) {
      std::uint32_t right[4];
      unsigned char* const to = exchange + m * Memory::kGroupExchange + warp * Memory::kOperand;
      as_operand<In>(right, Z[m][0], Z[m][1]);
      put_operand(to + Memory::kSolved, right);
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int token = 16 * warp + 8 * j + 2 * t + e % 2;
          if (a.trace.Z) static_cast<float*>(a.trace.Z)[(chunk * kChunk + token) * a.d_v + row_of(m, e)] = Z[m][j][e];
          Z[m][j][e] *= factor[kWrite * kChunk + token];
        }
      as_operand<In>(right, Z[m][0], Z[m][1]);
      put_operand(to + Memory::kWritten, right);
    }
    team_barrier();

    const float* const gamma = factor + kFactors * kChunk;  // S <- gamma_C S + (Z^T D_w) K, the warp's columns
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int j = 0; j < kOwn; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) S[m][j][e] *= gamma[PerChannel ? column_of(j, e) : 0];
#pragma unroll
    for (int k = 0; k < kTeam; ++k) {
      std::uint32_t b[kOwn / 2][4];
#pragma unroll
      for (int j = 0; j < kOwn / 2; ++j) operand_columns<kRowBytes>(b[j], at + Memory::kKeyOut, k, warp * kOwn / 2 + j);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        std::uint32_t left[4];
        get_operand(left, exchange + m * Memory::kGroupExchange + Memory::kWritten + k * Memory::kOperand);
#pragma unroll
        for (int j = 0; j < kOwn / 2; ++j)
          mma<In>(S[m][2 * j], left, b[j][0], b[j][1]), mma<In>(S[m][2 * j + 1], left, b[j][2], b[j][3]);
      }
    }
    publish_state();
    if (a.trace.S)
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int j = 0; j < kOwn; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            static_cast<float*>(a.trace.S)[(chunk * a.d_v + row_of(m, e)) * D + column_of(j, e)] = S[m][j][e];

#pragma unroll
    for (int k = 0; k < kTeam; ++k)  // O^T += Z^T P^T
    {
      std::uint32_t b[4];
      operand_rows<128>(b, at + Memory::kP, warp, k);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        std::uint32_t solved[4];
        get_operand(solved, exchange + m * Memory::kGroupExchange + Memory::kSolved + k * Memory::kOperand);
        mma<In>(O[m][0], solved, b[0], b[1]), mma<In>(O[m][1], solved, b[2], b[3]);
      }
    }
    // O^T goes back through the warp's own rows of the tile of V, so that rows of o leave in pieces of 16 bytes.
#pragma unroll
    for (int m = 0; m < M; ++m) {
      unsigned char* const tile = stage + Memory::kValues + (group + m) * Memory::kGroupValues;
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          *reinterpret_cast<In*>(tile + swizzled<32>(16 * warp + 8 * j + 2 * t + e % 2, e / 2) + g * 2) =
              number<In>(O[m][j][e]);
    }
    __syncwarp();
    In* const o = const_cast<In*>(row<In>(a.o, s, c * kChunk, head)) + first + group * 16;
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const int r = 16 * warp + thread % 32 / 2, piece = thread % 2;
      if (c * kChunk + r < s.length)
        *reinterpret_cast<uint4*>(o + r * a.o.stride_t + m * 16 + piece * 8) = *reinterpret_cast<const uint4*>(
            stage + Memory::kValues + (group + m) * Memory::kGroupValues + swizzled<32>(r, piece));
    }
  }

  if (a.final_state)
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int j = 0; j < kOwn; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          static_cast<float*>(a.final_state)[a.state_index(lane, row_of(m, e), column_of(j, e))] = S[m][j][e];
}

template <class In, int D, bool PerChannel, int M>
cudaError_t launch_chain(const Arguments& a, int groups, int stages, cudaStream_t stream) {
  const int shared = ChainMemory<D, PerChannel>::bytes(groups, stages);
  const cudaError_t error = allow_all_shared_memory(chain<In, D, PerChannel, M>);
  if (error != cudaSuccess) return error;
  const auto blocks = static_cast<unsigned>(a.N * a.HV * (a.d_v / 16 / groups));
  chain<In, D, PerChannel, M><<<blocks, kTeamThreads*(groups / M) + kFetchers, shared, stream>>>(a, stages);
  return cudaGetLastError();
}

/// \param plan  its rows a block: 16 are one group, more are teams of two groups
template <class In, int D, bool PerChannel>
cudaError_t launch_chain(const Arguments& a, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  const int groups = plan.rows / 16;
  return groups == 1 ? launch_chain<In, D, PerChannel, 1>(a, groups, plan.stages, stream)
                     : launch_chain<In, D, PerChannel, 2>(a, groups, plan.stages, stream);
}

/// Writes N = A - I and P of a chunk. \param A [64][kSquare] the inverse   \param P in shared memory, swizzled<128>
template <class In, class Workspace>
__device__ inline void store_matrices_of_chunk(const Workspace& workspace, std::int64_t chunk, const float* A,
                                               const unsigned char* P, int threads) {
  const int thread = threadIdx.x, lane = thread % 32, g = lane / 4, t = lane % 4;
  for (int block = thread / 32; block < kBlockPairs; block += threads / 32) {
    const int i = (block > 0) + (block > 2) + (block > 5), k = block - i * (i + 1) / 2;
    float left[4], right[4];  // rows g and g + 8 of the block, as the B operand lies
    for (int e = 0; e < 4; ++e) {
      const int column = 16 * k + 2 * t + e % 2 + e / 2 * 8, upper = 16 * i + g, lower = upper + 8;
      left[e] = column < upper ? A[upper * kSquare + column] : 0,
      right[e] = column < lower ? A[lower * kSquare + column] : 0;
    }
    std::uint32_t n[4];
    as_operand<In>(n, left, right);
    put_operand(workspace.N(chunk) + block_pair(i, k), n);
    rest_of_operand<In>(n, left, right);
    put_operand(workspace.N(chunk) + block_pair(i, k) + kBlockPair / 2, n);
  }
  for (int e = thread; e < kChunk * 8; e += threads)
    *reinterpret_cast<uint4*>(workspace.P(chunk) + e * 16) =
        *reinterpret_cast<const uint4*>(P + swizzled<128>(e / 8, e % 8));
}

/// Which sequence a chunk slot belongs to, and which of its chunks it is; chunk < 0: the slot is not used.
struct SlotOwner {
  std::int64_t sequence, chunk;
};
__device__ inline SlotOwner owner_of(const Arguments& a, std::int64_t slot) {
  std::int64_t low = 0, high = a.N - 1;  // the last sequence whose first slot is not beyond this one
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (first_slot(a, middle, kChunk) <= slot)
      low = middle;
    else
      high = middle - 1;
  }
  const std::int64_t chunk = slot - first_slot(a, low, kChunk);
  return {low, chunk * kChunk < a.sequence(low).length ? chunk : -1};
}

}  // namespace delta::gpu
