// SPDX-License-Identifier: Apache-2.0
// The producer of v5: what a chunk needs and the state does not enter.
#pragma once
#include "gpu/kernels/v5_cluster.cuh"

namespace delta::gpu {

/// Below this a decay is exactly 0 in fp32 wherever it is part of a product, as in v4.
constexpr double kResetLog = -1000;

/// A 16 x 16 block as a sum of two 16-bit numbers each, right to 2^-17 in bf16: the registers of an operand, twice.
struct Pair {
  std::uint32_t big[4], small[4];
};
/// \param left, right  accumulators of the block's columns 0 .. 7 and 8 .. 15
template <class In> __device__ inline Pair split(const float (&left)[4], const float (&right)[4]) {
  Pair p;
  as_operand<In>(p.big, left, right);
#pragma unroll
  for (int i = 0; i < 4; ++i) p.small[i] = p.big[i];
  rest_of_operand<In>(p.small, left, right);
  return p;
}
/// Blocks travel as four 8 x 8 matrices of 128 bytes, then four of the rests; a lane gives the address of one row.
__device__ inline void put_block(std::uint32_t to, const Pair& p) {
  const std::uint32_t row = to + threadIdx.x % 32 * 16;
  store_matrices(row, p.big), store_matrices(row + 512, p.small);
}
/// D += A B for such blocks, A in registers; of the four products the smallest is left out.
__device__ inline void multiply_blocks(float (&left)[4], float (&right)[4], const Pair& a, std::uint32_t b) {
  std::uint32_t big[4], small[4];
  const std::uint32_t row = b + threadIdx.x % 32 * 16;
  load_matrices_transposed(big, row), load_matrices_transposed(small, row + 512);
  using bf16 = __nv_bfloat16;
  mma<bf16>(left, a.small, big[0], big[1]), mma<bf16>(right, a.small, big[2], big[3]);
  mma<bf16>(left, a.big, small[0], small[1]), mma<bf16>(right, a.big, small[2], small[3]);
  mma<bf16>(left, a.big, big[0], big[1]), mma<bf16>(right, a.big, big[2], big[3]);
}

/// A team of four warps prepares a chunk. With G_i the sum of log decays up to token i,
/// \f[ L_g = \mathrm{sl}(B (H \odot X K^\top)), \quad A = (I + L_g)^{-1}, \quad T = A B, \quad W = T D_\gamma X, \quad
///     P = \mathrm{scale}\,(H \odot Q K^\top), \f]
/// so that Z = T V - W S^T and O = scale D_gamma Q S^T + P Z is all that is left for the chain. X = c K + diag(lambda)
/// Q is never formed: X K^T and W are sums of what K and what Q give.
///
/// A warp has the rows 16 w .. 16 w + 15 of everything in registers, from the products to A, which is the left operand
/// of W. Norms of q and k are factors of rows and columns: nothing is rounded for them.
///
/// \formula{F37} \formula{F38} \formula{F83}
template <class In, int D, bool Lambda, bool Trace> struct Team {
  using Memory = TeamShared<D>;
  const Arguments& a;
  unsigned char* const block;  ///< shared memory of the block
  const int id;                ///< of the team
  const unsigned turn;         ///< how many chunks it prepared before this one

  // Made anew for every chunk: addresses that live longer than a chunk would cost registers that are not there.
  const unsigned thread = own_thread() % 128, warp = __shfl_sync(0xffffffffu, thread / 32, 0), lane = thread % 32;
  const int g = static_cast<int>(lane / 4), t = static_cast<int>(lane % 4), first = static_cast<int>(16 * warp);
  unsigned char* const memory = block + Memory::memory(id);
  const std::uint32_t at = shared_address(memory), barriers = shared_address(block) + Memory::barriers(id);
  Numbers& of = reinterpret_cast<Numbers*>(memory + Memory::kNumbers)[turn & 1];

  __device__ void barrier() const { team_barrier(1 + id); }
  /// Stores a 16 x 16 block: the warp's rows, columns 16 k .., of a tile.
  __device__ void store_block(int tile, int k, const std::uint32_t (&x)[4]) const {
    const unsigned row = 16 * warp + lane % 16, piece = row % 8 ^ lane / 16;  // a lane gives the address of one row
    store_matrices(at + static_cast<unsigned>(tile) + row * 128 + (piece ^ static_cast<unsigned>(2 * k)) * 16, x);
  }
  /// Two neighbouring numbers.
  __device__ static float2 two(const float* x) { return *reinterpret_cast<const float2*>(x); }

  /// 1 / sqrt(|x|^2 + eps) of the row of K or Q that is the thread's.
  __device__ void take_norms(int count) const {
    const unsigned i = thread % kChunk;
    const unsigned char* const tile = memory + (thread < kChunk ? Memory::kKey : Memory::kQuery) + i * 128;
    float sum = 0;
    for (unsigned piece = 0; piece < D / 8; ++piece) {
      const In* const x = reinterpret_cast<const In*>(tile + piece / 8 * 8192 + ((piece % 8 ^ (i & 7)) << 4));
      for (int e = 0; e < 8; ++e) sum += number<float>(x[e]) * number<float>(x[e]);
    }
    (thread < kChunk ? of.key_norm : of.query_norm)[i] =
        static_cast<int>(i) < count ? 1 / sqrtf(sum + static_cast<float>(a.eps)) : 0;
  }
  /// Norms are factors of rows and columns, and of the numbers of the warp's own tokens: nothing is rounded for them.
  __device__ void apply_norms(float (&KK)[32], float (&QK)[32], Factors& factors) const {
#pragma unroll
    for (int e = 0; e < 32; ++e) {
      const int i = first + g + e / 2 % 2 * 8, j = e / 4 * 8 + 2 * t + e % 2;
      KK[e] *= of.key_norm[i] * of.key_norm[j], QK[e] *= of.query_norm[i] * of.key_norm[j];
    }
    if (lane >= 16) return;
    const unsigned i = 16 * warp + lane;  // `invert` reads no others before the team meets
    of.read_key[i] *= of.key_norm[i], of.read_query[i] *= of.query_norm[i];
    factors.output[i] *= of.query_norm[i], factors.write[i] *= of.key_norm[i];
  }

  /// From the warp's rows of K K^T and Q K^T: P and the blocks of L_g left of the diagonal to shared memory, the
  /// diagonal block of L_g to `diagonal`, fp32.
  /// Left of the diagonal block H_ij is (the decay from the block's first token to i) (the decay from j to that token),
  /// neither of which exceeds 1.
  __device__ void score(const float (&KK)[32], const float (&QK)[32], const Walk& x, float* diagonal) const {
#pragma unroll 1
    for (int j = static_cast<int>(lane); j < first; j += 32) of.columns[warp][j] = of.decay(first, j);
    float2 G[2];  // of the lane's rows: rounded, and the rest
    struct Row {
      float output, key, query;
    };
    Row row[2], late[2];  // what multiplies a row of scores; and that times the decay from the block's first token
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int i = first + g + 8 * h;
      const float fall = of.decay(i, first);
      G[h] = make_float2(of.high[i], of.low[i]);
      row[h] = {static_cast<float>(a.scale), a.reads_key ? of.beta[i] : 0, of.beta[i] * of.lambda[i]};
      late[h] = {fall * row[h].output, fall * row[h].key, fall * row[h].query};
    }
    auto scores = [](float& P, float& L, float H, const Row& r, float key, float query) {
      P = H * r.output * query;
      L = Lambda ? H * (r.key * key + r.query * query) : H * r.key * key;
    };
    __syncwarp();
    float own_key[8], own_query[8];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float L[8], P[8];
      std::uint32_t packed[4] = {};
      if (k < static_cast<int>(warp)) {
#pragma unroll
        for (int e = 0; e < 8; e += 2) {
          const float2 c = two(of.columns[warp] + 16 * k + e / 4 * 8 + 2 * t);
          scores(P[e], L[e], c.x, late[e / 2 % 2], KK[8 * k + e], QK[8 * k + e]);
          scores(P[e + 1], L[e + 1], c.y, late[e / 2 % 2], KK[8 * k + e + 1], QK[8 * k + e + 1]);
          packed[e / 2] = pack<In>(P[e], P[e + 1]);
        }
        put_block(at + Memory::kBlocks + (warp * (warp - 1) / 2 + k) * 1024,
                  split<__nv_bfloat16>(reinterpret_cast<float(&)[4]>(L[0]), reinterpret_cast<float(&)[4]>(L[4])));
      } else if (k == static_cast<int>(warp)) {
#pragma unroll
        for (int e = 0; e < 8; ++e) own_key[e] = KK[8 * k + e], own_query[e] = QK[8 * k + e];
      }
      store_block(Memory::kP, k, packed);
      if (Trace && a.trace.L_g) trace_block(a.trace.L_g, x, 16 * k, k < static_cast<int>(warp) ? L : nullptr);
    }
    float2 high[2], low[2];
#pragma unroll
    for (int m = 0; m < 2; ++m)
      high[m] = two(of.high + first + 8 * m + 2 * t), low[m] = two(of.low + first + 8 * m + 2 * t);
    float P[8], L[8];
    std::uint32_t packed[4];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int h = e / 2 % 2, m = e / 4, i = g + 8 * h, j = 8 * m + 2 * t + e % 2;
      const float H =
          power_of_two((G[h].x - (e % 2 ? high[m].y : high[m].x)) + (G[h].y - (e % 2 ? low[m].y : low[m].x)));
      scores(P[e], L[e], H, row[h], own_key[e], own_query[e]);
      if (j > i) P[e] = 0;
      if (j >= i) L[e] = 0;
    }
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
      packed[e / 2] = pack<In>(P[e], P[e + 1]);
      *reinterpret_cast<float2*>(diagonal + (g + e / 2 % 2 * 8) * 16 + e / 4 * 8 + 2 * t) = make_float2(L[e], L[e + 1]);
    }
    store_block(Memory::kP, static_cast<int>(warp), packed);
    if (Trace && a.trace.L_g) trace_block(a.trace.L_g, x, first, L);
    __syncwarp();
  }

  /// to [8 x 8] = sign M N, of blocks of the warp's diagonal block; a lane has two numbers of it.
  __device__ void multiply_small(float* to, const float* M, const float* N, float sign) const {
    float2 sum{};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float m = M[g * 16 + j];
      const float2 n = two(N + j * 16 + 2 * t);
      sum.x += m * n.x, sum.y += m * n.y;
    }
    __syncwarp();
    *reinterpret_cast<float2*>(to + g * 16 + 2 * t) = make_float2(sign * sum.x, sign * sum.y);
    __syncwarp();
  }
  /// A = (I + L)^{-1} of the diagonal block in place, fp32. Its two diagonal 8 x 8 blocks by forward substitution, a
  /// lane a column; then A_10 = -A_11 (L_10 A_00), by way of the upper right block, which is zero before and after.
  __device__ void substitute(float* L) const {
    constexpr int kDown = 8 * 16, kAlong = kDown + 8;  // to the 8 x 8 block below, and to the next on the diagonal
    const unsigned c = lane % 8;
    float* const own = L + lane / 8 % 2 * kAlong;
    float column[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float sum = static_cast<unsigned>(i) == c ? 1.f : 0.f;
#pragma unroll
      for (int j = 0; j < i; ++j) sum -= own[i * 16 + j] * column[j];
      column[i] = sum;
    }
    __syncwarp();
    if (lane < 16)
#pragma unroll
      for (int i = 0; i < 8; ++i) own[i * 16 + c] = column[i];
    __syncwarp();
    multiply_small(L + 8, L + kDown, L, 1);
    multiply_small(L + kDown, L + kAlong, L + 8, -1);
    *reinterpret_cast<float2*>(L + 8 + g * 16 + 2 * t) = make_float2(0, 0);
    __syncwarp();
  }

  /// What is made of A, as left operands. W = T D_gamma X takes A as a pair of numbers, so that W is rounded once.
  struct Products {
    std::uint32_t T[4][4];               ///< A B, rounded
    Pair key[4], query[Lambda ? 4 : 1];  ///< A D_a and A D_b: -W = A D_a K + A D_b Q
  };
  /// The columns of a block of A multiplied by the numbers of their tokens.
  __device__ void scale_columns(float (&left)[4], float (&right)[4], const float (&l)[4], const float (&r)[4],
                                const float* numbers) const {
    const float2 x = two(numbers + 2 * t), y = two(numbers + 2 * t + 8);
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      left[e] = l[e] * x.x, left[e + 1] = l[e + 1] * x.y;
      right[e] = r[e] * y.x, right[e + 1] = r[e + 1] * y.y;
    }
  }
  /// From block k of the warp's row of A, as part `to` of p.
  __device__ void use_block(Products& p, int to, unsigned k, const float (&l)[4], const float (&r)[4],
                            const Walk& x) const {
    float left[4], right[4];
    scale_columns(left, right, l, r, of.read_key + 16 * k);
    p.key[to] = split<In>(left, right);
    if constexpr (Lambda) {
      scale_columns(left, right, l, r, of.read_query + 16 * k);
      p.query[to] = split<In>(left, right);
    }
    scale_columns(left, right, l, r, of.beta + 16 * k);
    as_operand<In>(p.T[to], left, right);
    if (Trace && a.trace.inverse) {
      const float row[8] = {l[0], l[1], l[2], l[3], r[0], r[1], r[2], r[3]};
      trace_block(a.trace.inverse, x, static_cast<int>(16 * k), row);
    }
  }

  /// The warp's row of blocks of A, from the diagonal to the left:
  /// \f[ A_{ij} = -\Big(\sum_{k=j+1}^{i} A_{ik} L_{kj}\Big) A_{jj}. \f]
  /// All blocks are pairs of bf16 (16 bits), and no power of L appears: for repeated keys those reach 4.65e17.
  __device__ void invert(Products& p, float* diagonal, const Walk& x) const {
    using bf16 = __nv_bfloat16;
    Pair A[4];
    {
      const float2 x0 = two(diagonal + g * 16 + 2 * t), x1 = two(diagonal + (g + 8) * 16 + 2 * t);
      const float2 x2 = two(diagonal + g * 16 + 2 * t + 8), x3 = two(diagonal + (g + 8) * 16 + 2 * t + 8);
      const float left[4] = {x0.x, x0.y, x1.x, x1.y}, right[4] = {x2.x, x2.y, x3.x, x3.y};
      const Pair own = split<bf16>(left, right);
      __syncwarp();
      put_block(at + Memory::kInverse + warp * 1024, own);
      use_block(p, 3, warp, left, right, x);
#pragma unroll
      for (int k = 0; k < 4; ++k) {  // in its place, with zeros beyond it
        const bool here = k == static_cast<int>(warp);
        A[k] = here ? own : Pair{};
        p.key[k] = here ? p.key[3] : Pair{};
        if constexpr (Lambda) p.query[k] = here ? p.query[3] : Pair{};
#pragma unroll
        for (int i = 0; i < 4; ++i) p.T[k][i] = here ? p.T[3][i] : 0;
        if (Trace && a.trace.inverse && k > static_cast<int>(warp)) trace_block(a.trace.inverse, x, 16 * k, nullptr);
      }
    }
    barrier();
#pragma unroll
    for (int j = 2; j >= 0; --j) {
      if (j >= static_cast<int>(warp)) continue;
      float left[4] = {}, right[4] = {};
#pragma unroll
      for (int k = j + 1; k < 4; ++k)
        if (k <= static_cast<int>(warp))
          multiply_blocks(left, right, A[k], at + Memory::kBlocks + static_cast<unsigned>(k * (k - 1) / 2 + j) * 1024);
#pragma unroll
      for (int e = 0; e < 4; ++e) left[e] = -left[e], right[e] = -right[e];
      const Pair sum = split<bf16>(left, right);
#pragma unroll
      for (int e = 0; e < 4; ++e) left[e] = right[e] = 0;
      multiply_blocks(left, right, sum, at + Memory::kInverse + static_cast<unsigned>(j) * 1024);
      A[j] = split<bf16>(left, right);
      use_block(p, j, static_cast<unsigned>(j), left, right, x);
    }
  }

  /// -W and T to shared memory, T over the blocks that the warps handed each other.
  __device__ void transform(const Products& p) const {
    const std::uint32_t tiles = place_of(at);
    barrier();  // nobody reads the blocks any more
#pragma unroll
    for (int k = 0; k < 4; ++k) store_block(Memory::kT, k, p.T[k]);
#pragma unroll 1
    for (int h = 0; h < D / 64; ++h) {
      float W[32];
      begin_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const std::uint64_t key = rows_along_n(tiles, Memory::kKey + h * 8192 + 2048 * k, 8192);
        multiply_along_n<In>(W, p.key[k].small, key, k > 0);
        multiply_along_n<In>(W, p.key[k].big, key);
        if constexpr (Lambda) {
          const std::uint64_t query = rows_along_n(tiles, Memory::kQuery + h * 8192 + 2048 * k, 8192);
          multiply_along_n<In>(W, p.query[k].small, query);
          multiply_along_n<In>(W, p.query[k].big, query);
        }
      }
      commit_products();
      wait_products<0>();
      pin(W);
      if (h + 1 == D / 64 && lane == 0) arrive(barriers + Memory::kEmptied);
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        std::uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) packed[i] = pack<In>(W[8 * m + 2 * i], W[8 * m + 2 * i + 1]);
        store_block(Memory::kW + h * 8192, m, packed);
      }
    }
  }

  /// All of it for one chunk.
  __device__ void prepare(const Walk& x) const {
    const std::uint32_t tiles = place_of(at);
    float* const diagonal = reinterpret_cast<float*>(memory + Memory::kInverse + warp * 1024);
    wait(barriers + Memory::kLoaded, turn & 1);
    if (x.count() < kChunk) clear_rows<128>(memory + Memory::kKey, 2 * (D / 64), x.count(), thread), barrier();
    float KK[32], QK[32];
    begin_products();
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      const int along = k / 4 * 8192 + k % 4 * 32;
      const std::uint64_t key = rows_along_k(tiles, Memory::kKey + along);
      multiply_tiles<In>(KK, key, key, k > 0);
      multiply_tiles<In>(QK, rows_along_k(tiles, Memory::kQuery + along), key, k > 0);
    }
    commit_products();
    if (a.l2norm) take_norms(x.count());
    wait_products<0>();
    pin(KK), pin(QK);
    if (a.l2norm) {
      barrier();
      apply_norms(KK, QK, reinterpret_cast<Factors*>(memory + Memory::kFactors)[turn & 1]);
    }
    if (turn > 0) wait(barriers + Memory::kReusable, (turn - 1) & 1);
    score(KK, QK, x, diagonal);
    substitute(diagonal);
    Products p;
    invert(p, diagonal, x);
    transform(p);
    fence_shared();
    barrier();
    if (thread == 0) arrive(barriers + Memory::kDone);
  }

  /// Writes the lane's numbers of the block of a [C, C] matrix that begins at column j0 of the warp's rows; zeros
  /// without them.
  __device__ void trace_block(void* to, const Walk& x, int j0, const float* numbers) const {
    if (!x.outputs) return;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int i = first + g + e / 2 % 2 * 8, j = j0 + e / 4 * 8 + 2 * t + e % 2;
      static_cast<float*>(to)[(x.place(a, x.chunk) * kChunk + i) * kChunk + j] = numbers ? numbers[e] : 0;
    }
  }
};

/// A warpgroup that prepares: of the chunks that are the block's, every third.
/// \param producer  the block's number among those that prepare
template <class In, int D, bool Lambda, bool Trace>
__device__ void prepare_chunks(const Arguments& a, const Shape& shape, unsigned char* memory, unsigned cluster,
                               int producer, int team) {
  unsigned number = 0;
  for (Walk x(a, shape, cluster, producer + shape.producers * team); x.more(); x.advance(shape.producers * kTeams))
    Team<In, D, Lambda, Trace>{a, memory, team, number++}.prepare(x);
}

// ---------------------------------------------------------------- the clerk

/// K and Q of a chunk.
template <int D>
__device__ inline void fetch(const Arguments& a, const Maps& maps, const Walk& x, std::uint32_t to,
                             std::uint32_t loaded) {
  using Memory = TeamShared<D>;
  expect_bytes(loaded, 2 * Memory::kKeys);
#pragma unroll 1
  for (int h = 0; h < D / 64; ++h) {
    load_tile(to + Memory::kKey + h * 8192, maps.k, 64 * h, a.key_head(x.head), x.token(), x.batch, loaded);
    load_tile(to + Memory::kQuery + h * 8192, maps.q, 64 * h, a.key_head(x.head), x.token(), x.batch, loaded);
  }
}

/// What was prepared, to every chain, each half as soon as all have opened their stage for it.
/// \param from  the team's memory   \param number  of chunks sent before
template <int D>
__device__ inline void send(const Shape& shape, std::uint32_t block, std::uint32_t from, std::uint32_t barriers,
                            unsigned item, unsigned number) {
  using Memory = TeamShared<D>;
  using Chain = ChainShared<D>;
  const int stage = static_cast<int>(item % static_cast<unsigned>(shape.depth));
  const std::uint32_t full = block + Chain::kFull + 8 * stage;
  const std::uint32_t to = block + Chain::stages(shape.warpgroups) + stage * Chain::stage(shape.warpgroups);
  auto send_all = [&](std::uint32_t there, int piece, int bytes) {
#pragma unroll 1
    for (unsigned chain = 0; chain < static_cast<unsigned>(shape.chains); ++chain)
      send_bytes(in_block(chain, there), from + piece, bytes, in_block(chain, full));
  };
  wait(barriers + Memory::kOpened, number & 1);
  send_all(to + Chain::kW, Memory::kW, Memory::kKeys);
  send_all(to + Chain::kT, Memory::kT, 8192);
  wait(barriers + Memory::kRestOpened, number & 1);
  send_all(to + Chain::kP, Memory::kP, 8192);
  send_all(block + Chain::kFactors + stage * static_cast<int>(sizeof(Factors)),
           Memory::kFactors + static_cast<int>(number & 1) * static_cast<int>(sizeof(Factors)), sizeof(Factors));
}

/// The numbers of a chunk, by one warp: a lane has two tokens, and the lanes sum up their decays.
template <bool Trace>
__device__ inline void take_numbers(const Arguments& a, const Walk& x, Numbers& to, Factors& factors) {
  const int lane = threadIdx.x % 32;
  auto given = [&](const Rows& rows, int i, float absent) {
    if (!rows.data || i >= x.count()) return absent;
    return static_cast<const float*>(
        rows.data)[x.batch * rows.stride_b + (x.token() + i) * rows.stride_t + x.head * rows.stride_h];
  };
#pragma unroll 1
  for (int i = lane; i < kChunk; i += 32) {
    to.high[i] = given(a.g, i, a.gate_is_log ? 0 : 1);
    to.beta[i] = given(a.beta, i, i < x.count() ? 1 : 0), to.lambda[i] = given(a.lambda, i, 0);
  }
  __syncwarp();
  double log_decay[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const float gate = to.high[2 * lane + e];
    log_decay[e] = a.gate_is_log ? gate : log(static_cast<double>(gate));
    if (log_decay[e] < kResetLog) log_decay[e] = kResetLog;  // a NaN stays one
  }
  double sum = log_decay[0] + log_decay[1];
#pragma unroll 1
  for (int step = 1; step < 32; step *= 2) {
    const double before = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += before;
  }
  const double before = __shfl_up_sync(0xffffffffu, sum, 1);
  const double G[2] = {(lane == 0 ? 0 : before) + log_decay[0], sum}, whole = __shfl_sync(0xffffffffu, sum, 31);
  constexpr double kLog2 = 1.4426950408889634;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int i = 2 * lane + e;
    const double bits = G[e] * kLog2;
    to.high[i] = static_cast<float>(bits);
    to.low[i] = static_cast<float>(bits - static_cast<double>(to.high[i]));
    const float gamma = power_of_two(static_cast<float>(bits));
    to.read_key[i] = a.reads_key ? -to.beta[i] * gamma : 0;
    to.read_query[i] = -to.beta[i] * gamma * to.lambda[i];
    factors.output[i] = static_cast<float>(a.scale) * gamma;
    factors.write[i] = power_of_two(static_cast<float>((whole - G[e]) * kLog2));
    if (i == kChunk - 1) factors.gamma[0] = gamma;
    if (Trace && a.trace.gamma && x.outputs && i < x.count())
      static_cast<float*>(a.trace.gamma)[x.place(a, x.chunk) * kChunk + i] = gamma;
  }
}

/// The warp that supplies a team, and sends away what it has prepared.
template <int D, bool Trace>
__device__ void keep_supplied(const Arguments& a, const Maps& maps, const Shape& shape, unsigned char* block,
                              unsigned cluster, int producer, int team) {
  using Memory = TeamShared<D>;
  const int lane = threadIdx.x % 32;
  unsigned char* const memory = block + Memory::memory(team);
  const std::uint32_t block_at = shared_address(block), at = shared_address(memory),
                      barriers = block_at + Memory::barriers(team);
  unsigned number = 0, last = 0;  // chunks before this one, and the last of them
  auto deliver = [&] {
    wait(barriers + Memory::kDone, (number - 1) & 1);
    send<D>(shape, block_at, at, barriers, last, number - 1);
    wait(barriers + Memory::kLanded, (number - 1) & 1);
    if (lane == 0) arrive(barriers + Memory::kReusable);
  };
  for (Walk x(a, shape, cluster, producer + shape.producers * team); x.more(); x.advance(shape.producers * kTeams)) {
    take_numbers<Trace>(a, x, reinterpret_cast<Numbers*>(memory + Memory::kNumbers)[number & 1],
                        reinterpret_cast<Factors*>(memory + Memory::kFactors)[number & 1]);
    fence_shared();  // the factors are sent by the copy engine
    if (number > 0) wait(barriers + Memory::kEmptied, (number - 1) & 1);
    fetch<D>(a, maps, x, at, barriers + Memory::kLoaded);
    arrive(barriers + Memory::kLoaded);
    if (number > 0) deliver();
    last = x.item, ++number;
  }
  if (number > 0) deliver();
}

}  // namespace delta::gpu
