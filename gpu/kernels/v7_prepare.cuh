// SPDX-License-Identifier: Apache-2.0
// What a team of v7 prepares: of a chunk, what the state does not enter.
#pragma once
#include "gpu/kernels/pairs.cuh"
#include "gpu/kernels/v7_block.cuh"

namespace delta::gpu {

/// Log decays, to base 2, are summed up as integers, in this unit: exactly, in any order. fp64 would do as well,
/// but waits for the tensor cores; only the logarithm of a decay that was given as such still needs it.
constexpr float kUnit = 0x1p-40f;
/// \param gate  a decay, or its natural log. Below kResetLog, where decays are 0 in fp32, all are the same reset
__device__ inline std::int64_t in_units(float gate, bool is_log) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kMost = -kResetLog * kLog2E;
  if (!is_log) return __double2ll_rn(fmin(fmax(log2(static_cast<double>(gate)), -kMost), kMost) / kUnit);
  constexpr float kHigh = static_cast<float>(kLog2E), kLow = static_cast<float>(kLog2E - static_cast<double>(kHigh));
  gate = fminf(fmaxf(gate, static_cast<float>(kResetLog)), static_cast<float>(-kResetLog));
  const float high = gate * kHigh, low = fmaf(gate, kHigh, -high) + gate * kLow;
  return __float2ll_rn(high / kUnit) + __float2ll_rn(low / kUnit);
}

/// A thread's place in its team. Asked for anew in each step: addresses that are made of it would be kept in registers
/// from one step to the next, and there are 64.
struct Place {
  unsigned thread, lane;
  int warp, first, g, t;  ///< first: of the warp's rows
  __device__ Place(unsigned in_team, int of_team) : thread(in_team), warp(of_team), first(16 * of_team) {
    asm volatile("" : "+r"(thread));
    lane = thread % 32, g = static_cast<int>(lane / 4), t = static_cast<int>(lane % 4);
  }
};

/// Four warps prepare a chunk: the scores P, and the inverse A of I + L as a pair of bf16 operands.
/// \f[ L = \mathrm{sl}(c\,H \odot X K^\top)\,B, \quad X K^\top = K K^\top + \mathrm{diag}(\lambda)\,Q K^\top, \quad
///     A = (I + L)^{-1}, \quad P = \mathrm{scale}\,(H \odot Q K^\top)\,B \f]
/// X itself is not needed, here or by the chain: lambda is a factor of rows of Q K^T. A warp has 16 rows of what it
/// multiplies, and of A and L a block of 16 x 16 at a time. \formula{F37} \formula{F38} \formula{F83}
template <class In, int D, bool Trace> struct AloneTeam {
  using Memory = AloneShared<D>;
  const Arguments& a;
  unsigned char* const block;  ///< shared memory
  const unsigned n;            ///< the chunk's number
  const unsigned thread;       ///< of the team
  const int warp;
  const std::uint32_t at = shared_address(block);

  __device__ Place place() const { return {thread, warp}; }
  /// The chunk's number, asked for anew for the same reason.
  __device__ unsigned number_of_chunk() const {
    unsigned m = n;
    asm volatile("" : "+r"(m));
    return m;
  }
  __device__ int team() const { return static_cast<int>(number_of_chunk() % Memory::kTeams); }
  __device__ int stage() const { return static_cast<int>(number_of_chunk() % Memory::kStages); }
  __device__ int key() const { return Memory::kKey + stage() * Memory::kStage; }
  __device__ int scores() const { return Memory::kScores + stage() * kTileBytes; }
  __device__ int inverse() const { return Memory::kInverse + team() * 2 * kTileBytes; }
  __device__ const Chunk& chunk() const { return Memory::chunk(block, n); }
  __device__ const float* given() const { return Memory::given(block, n); }
  __device__ TokenNumbers& numbers() const { return Memory::numbers(block, number_of_chunk()); }
  __device__ TokenFactors& factors() const { return Memory::factors(block, number_of_chunk()); }
  __device__ void barrier() const { team_barrier(1 + team()); }

  // ---------------------------------------------------------------- numbers

  /// Asks for the gates, betas and lambdas of the chunk. By one warp.
  __device__ void ask() const {
    const Chunk& x = chunk();
    const int i = static_cast<int>(2 * (thread % 32)), count = x.count();
    const auto copy = [&](const Rows& rows, int which) {
      if (!rows.data) return;
      const float* const from = static_cast<const float*>(rows.data) + x.batch * rows.stride_b +
                                (x.token + i) * rows.stride_t + x.head * rows.stride_h;
      const std::uint32_t to = shared_address(given() + which * kChunk + i);
      if (i < count) copy_number(to, from);
      if (i + 1 < count) copy_number(to + 4, from + rows.stride_t);
    };
    copy(a.g, 0), copy(a.beta, 1), copy(a.lambda, 2);
    commit_copies();
  }
  /// Sums up the decays. By one warp: a lane has two tokens.
  __device__ void sum() const {
    const int lane = static_cast<int>(thread % 32), count = chunk().count();
    float gate[2];
#pragma unroll
    for (int e = 0; e < 2; ++e)
      gate[e] = a.g.data && 2 * lane + e < count ? given()[2 * lane + e] : a.gate_is_log ? 0 : 1;
    const std::int64_t second = in_units(gate[1], a.gate_is_log);
    std::int64_t sum = in_units(gate[0], a.gate_is_log) + second;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const std::int64_t before = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += before;
    }
    const std::int64_t G[2] = {sum - second, sum};
    const auto is_broken = [&](float x) { return isnan(x) || (!a.gate_is_log && x < 0); };  // below 0: no logarithm
    const bool broken[2] = {is_broken(gate[0]), is_broken(gate[0]) || is_broken(gate[1])};
    const bool before = (__ballot_sync(0xffffffffu, broken[1]) & (1u << lane) - 1) != 0;
    float high[2], low[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      high[e] = __ll2float_rn(G[e]), low[e] = __ll2float_rn(G[e] - __float2ll_rn(high[e])) * kUnit;
      high[e] = before || broken[e] ? NAN : high[e] * kUnit;  // a NaN stays one, for all tokens from there on
    }
    TokenNumbers& of = numbers();
    put_two(of.high + 2 * lane, high[0], high[1]), put_two(of.low + 2 * lane, low[0], low[1]);
  }
  /// What is made of the sums. By all four warps.
  __device__ void spread() const {
    const Place p = place();
    const int number = static_cast<int>(p.thread), i = number % kChunk, count = chunk().count();
    TokenNumbers& of = numbers();
    TokenFactors& factors = this->factors();
    const float* const given = this->given();
    const auto beta = [&](int j) { return j >= count ? 0 : a.beta.data ? given[kChunk + j] : 1; };
    if (number < kChunk) {
      const float gamma = power_of_two(of.high[i]);
      factors.read[i] = a.reads_key ? -gamma : 0, factors.output[i] = static_cast<float>(a.scale) * gamma;
      if (i == kChunk - 1) factors.gamma[0] = gamma;
      if (Trace && a.trace.gamma && i < count) static_cast<float*>(a.trace.gamma)[chunk().place * kChunk + i] = gamma;
    } else {
      of.beta[i] = beta(i), factors.write[i] = beta(i) * of.decay(kChunk - 1, i);
      if (a.lambda.data) factors.lambda[i] = i < count ? given[2 * kChunk + i] : 0;
    }
    if (number >= 96) return;
    const int b = number < 16 ? 1 : number < 48 ? 2 : 3, j = number - TokenNumbers::column(b);
    of.columns[number] = of.decay(16 * b, j) * beta(j);
  }

  // ---------------------------------------------------------------- scores

  /// Norms are factors of rows and columns, and of the numbers of tokens: nothing is rounded for them. Those of rows of
  /// zeros, as are those beyond the end, are 1.
  __device__ void take_norms() const {
    const unsigned thread = place().thread, i = thread % kChunk;
    TokenNumbers& of = numbers();
    const unsigned char* const tile = block + key() + (thread < kChunk ? 0 : Memory::kQuery) + i * 128;
    float sum = 0;
    for (unsigned piece = 0; piece < D / 8; ++piece) {
      const In* const x = reinterpret_cast<const In*>(tile + piece / 8 * kTileBytes + ((piece % 8 ^ (i & 7)) << 4));
      for (int e = 0; e < 8; ++e) sum += number<float>(x[e]) * number<float>(x[e]);
    }
    const float length = sum > 0 ? sqrtf(sum + static_cast<float>(a.eps)) : 1;
    (thread < kChunk ? of.key_norm : of.query_norm)[i] = 1 / length;
    if (thread < kChunk) of.key_length[i] = length;
    barrier();
    TokenFactors& factors = this->factors();
    if (thread < kChunk) {
      factors.read[i] /= length, factors.write[i] /= length;
      if (a.lambda.data) factors.lambda[i] *= of.query_norm[i] * length;
    } else {
      factors.output[i] /= length;
    }
    barrier();
  }
  /// M_ij times a number of its row and one of its column.
  __device__ void scale(float (&M)[32], const float* rows, const float* columns) const {
    const Place p = place();
#pragma unroll
    for (int e = 0; e < 32; ++e) M[e] *= rows[p.first + p.g + e / 2 % 2 * 8] * columns[e / 4 * 8 + 2 * p.t + e % 2];
  }

  /// M (+)= rows K^T, begun.
  __device__ void multiply_rows(float (&M)[32], int rows, int add) const {
    const std::uint32_t left = place_of(at + static_cast<unsigned>(rows)),
                        right = place_of(at + static_cast<unsigned>(key()));
    begin_products();
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      const int piece = k / 4 * kTileBytes + k % 4 * 32;
      multiply_tiles<In>(M, rows_along_k(left, piece), rows_along_k(right, piece), k > 0 ? 1 : add);
    }
    commit_products();
  }

  /// Where the lane has its row of block (0, 0) of A, or of L before it; and of block (i, j). The rests are a tile on.
  __device__ std::uint32_t origin(unsigned lane) const {
    return at + static_cast<unsigned>(inverse()) + lane % 16 * 128 + (lane % 8 ^ lane / 16) * 16;
  }
  __device__ static std::uint32_t block_of(std::uint32_t origin, int i, int j) {
    return (origin ^ static_cast<unsigned>(32 * j)) + static_cast<unsigned>(2048 * i);
  }
  /// A block of P to its tile, rounded; one of L to the place of A's, as a pair.
  template <bool OfL> __device__ static void store_scores(std::uint32_t to, const float (&x)[8]) {
    using bf16 = __nv_bfloat16;
    const auto& left = reinterpret_cast<const float(&)[4]>(x[0]);
    const auto& right = reinterpret_cast<const float(&)[4]>(x[4]);
    std::uint32_t packed[4];
    as_operand<std::conditional_t<OfL, bf16, In>>(packed, left, right);
    store_matrices(to, packed);
    if (!OfL) return;
    rest_of_operand<bf16>(packed, left, right);
    store_matrices(to + kTileBytes, packed);
  }
  /// H B of the warp's rows in the diagonal block, and for blocks left of it what is H's of its rows: the decays from
  /// the block's first token.
  struct Decays {
    float late[2], diagonal[8];
  };
  __device__ Decays decays() const {
    const auto [thread, lane, warp, first, g, t] = place();
    const TokenNumbers& of = numbers();
    Decays d;
    float2 G[2], high[2], low[2], beta[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      G[h] = make_float2(of.high[first + g + 8 * h], of.low[first + g + 8 * h]);
      d.late[h] = power_of_two((G[h].x - of.high[first]) + (G[h].y - of.low[first]));
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int j = first + 8 * m + 2 * t;
      high[m] = two(of.high + j), low[m] = two(of.low + j), beta[m] = two(of.beta + j);
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int h = e / 2 % 2, m = e / 4;
      auto column = [&](const float2(&x)[2]) { return e % 2 ? x[m].y : x[m].x; };
      d.diagonal[e] = power_of_two((G[h].x - column(high)) + (G[h].y - column(low))) * column(beta);
    }
    return d;
  }
  /// From the warp's rows of Q K^T: P; or (OfL) from those of X K^T: L, its diagonal block in fp32.
  /// Left of the diagonal block H_ij is (the decay from the block's first token to i) (the decay from j to that token),
  /// neither of which exceeds 1.
  template <bool OfL> __device__ void score(const float (&M)[32], const Decays& d, float factor) const {
    const auto [thread, lane, warp, first, g, t] = place();
    const TokenNumbers& of = numbers();
    const std::uint32_t to = block_of(origin(lane), warp, 0) + (OfL ? 0 : static_cast<unsigned>(scores() - inverse()));
    const float late[2] = {d.late[0] * factor, d.late[1] * factor};
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      if (k < warp) {
        float x[8];
#pragma unroll
        for (int e = 0; e < 8; e += 2) {
          const float2 c = two(of.columns + TokenNumbers::column(warp) + 16 * k + e / 4 * 8 + 2 * t);
          x[e] = c.x * late[e / 2 % 2] * M[8 * k + e], x[e + 1] = c.y * late[e / 2 % 2] * M[8 * k + e + 1];
        }
        store_scores<OfL>(to ^ static_cast<unsigned>(32 * k), x);
        if (Trace && OfL && a.trace.L_g) trace_block(a.trace.L_g, warp, k, x);
      }
    }
    float last[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float m = warp < 2 ? (warp == 0 ? M[e] : M[8 + e]) : warp == 2 ? M[16 + e] : M[24 + e];
      const int i = g + e / 2 % 2 * 8, j = e / 4 * 8 + 2 * t + e % 2;
      last[e] = (OfL ? j >= i : j > i) ? 0 : d.diagonal[e] * factor * m;
    }
    if (OfL) {
#pragma unroll
      for (int e = 0; e < 8; e += 2)
        put_two(diagonal(warp) + in_diagonal(g + e / 2 % 2 * 8, e / 4 * 8 + 2 * t), last[e], last[e + 1]);
      if (Trace && a.trace.L_g)
        for (int k = warp; k < 4; ++k) trace_block(a.trace.L_g, warp, k, k == warp ? last : nullptr);
    } else {
      store_scores<false>(to ^ static_cast<unsigned>(32 * warp), last);
    }
  }

  // ---------------------------------------------------------------- the inverse

  /// A warp's diagonal block of L, then of A, in fp32.
  __device__ float* diagonal(int warp) const {
    return reinterpret_cast<float*>(block + Memory::kDiagonal + (4 * team() + warp) * kBlockBytes);
  }
  /// A = (I + L)^{-1} of the diagonal block in place. Its two halves on the diagonal by forward substitution, a lane a
  /// column; then the quarter below them, -A_22 (L_21 A_11), a lane two numbers.
  __device__ void substitute() const {
    const auto [thread, lane, warp, first, g, t] = place();
    float* const L = diagonal(warp);
    const int half = static_cast<int>(lane / 8 % 2) * 8, c = static_cast<int>(lane % 8);
    float4 rows[8][2];
#pragma unroll
    for (int i = 1; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < i; j += 4)
        rows[i][j / 4] = *reinterpret_cast<const float4*>(L + in_diagonal(half + i, half + j));
    float column[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) column[i] = i == c ? 1 : 0;
#pragma unroll
    for (int j = 0; j < 7; ++j)  // as soon as a number is found it is taken out of all that follow
#pragma unroll
      for (int i = j + 1; i < 8; ++i) {
        const float4& l = rows[i][j / 4];
        column[i] -= (j % 4 == 0 ? l.x : j % 4 == 1 ? l.y : j % 4 == 2 ? l.z : l.w) * column[j];
      }
    __syncwarp();
    if (lane < 16)
#pragma unroll
      for (int i = 0; i < 8; ++i) L[in_diagonal(half + i, half + c)] = column[i];
    __syncwarp();
    // The lower left quarter becomes sign times (the quarter of rows 8 .. from column `left`: itself, or from 8 A_22)
    // times (the quarter of columns 0 .. from row `above`: A_11, or from 8 itself).
    const auto multiply_quarters = [L, g = g, t = t](int left, int above, float sign) {
      float2 sums[2];
#pragma unroll
      for (int k = 0; k < 8; k += 4) {
        const float4 l = *reinterpret_cast<const float4*>(L + in_diagonal(8 + g, left + k));
        float2 m[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) m[i] = two(L + in_diagonal(above + k + i, 2 * t));
        sums[k / 4] = make_float2(l.x * m[0].x + l.y * m[1].x + l.z * m[2].x + l.w * m[3].x,
                                  l.x * m[0].y + l.y * m[1].y + l.z * m[2].y + l.w * m[3].y);
      }
      __syncwarp();
      put_two(L + in_diagonal(8 + g, 2 * t), sign * (sums[0].x + sums[1].x), sign * (sums[0].y + sums[1].y));
      __syncwarp();
    };
    multiply_quarters(0, 0, 1), multiply_quarters(8, 8, -1);
  }
  __device__ void trace_inverse(int i, int j, const float (&left)[4], const float (&right)[4]) const {
    if (!Trace || !a.trace.inverse) return;
    const float numbers[8] = {left[0], left[1], left[2], left[3], right[0], right[1], right[2], right[3]};
    trace_block(a.trace.inverse, i, j, numbers);
  }
  __device__ static void put(std::uint32_t to, const Pair& p) {
    store_matrices(to, p.big), store_matrices(to + kTileBytes, p.small);
  }
  __device__ static Pair get(std::uint32_t from) {
    Pair p;
    load_matrices(p.big, from), load_matrices(p.small, from + kTileBytes);
    return p;
  }
  __device__ static void multiply_by(float (&left)[4], float (&right)[4], const Pair& m, std::uint32_t n) {
    multiply_pairs(left, right, m, n, n + kTileBytes);
  }
  /// A from the diagonal outwards, as in v5, a block a warp: A_21 = -(A_22 L_21) A_11 for squares of two blocks and
  /// then of four. What comes about lies where the chain will multiply with it.
  /// \param meanwhile  what the two warps do that have no square of two
  template <class Meanwhile> __device__ void invert(const Meanwhile& meanwhile) const {
    using bf16 = __nv_bfloat16;
    const auto [thread, lane, warp, first, g, t] = place();
    const std::uint32_t A = origin(lane);
    const float* const diagonal = this->diagonal(warp);
    float left[4], right[4];
    read_diagonal(left, right, diagonal, g, t);
    Pair mine = split<bf16>(left, right);
    put(block_of(A, warp, warp), mine);
    trace_inverse(warp, warp, left, right);
    barrier();
    if (warp % 2 == 1) {
      clear(left, right), multiply_by(left, right, mine, block_of(A, warp, warp - 1));
      mine = split<bf16>(left, right);
      clear(left, right), multiply_by(left, right, mine, block_of(A, warp - 1, warp - 1));
      negate(left, right);
      put(block_of(A, warp, warp - 1), split<bf16>(left, right));
      trace_inverse(warp, warp - 1, left, right);
    } else {
      meanwhile(warp);
    }
    barrier();
    const int i = 2 + warp / 2, j = warp % 2;  // the warp's block of the square of four
    // Over the diagonal blocks 0 and 1, which nobody reads any more.
    const std::uint32_t between = at + static_cast<unsigned>(Memory::kDiagonal + (4 * team() + i - 2) * kBlockBytes);
    clear(left, right);
#pragma unroll 1
    for (int k = 2; k <= i; ++k) multiply_by(left, right, get(block_of(A, i, k)), block_of(A, k, j));
    mine = split<bf16>(left, right);
    if (j == 1) put_block(between, mine);
    barrier();
    clear(left, right), multiply_by(left, right, mine, block_of(A, j, j));
    if (j == 0) multiply_by(left, right, get_block(between), block_of(A, 1, 0));
    negate(left, right);
    put(block_of(A, i, j), split<bf16>(left, right));
    trace_inverse(i, j, left, right);
    if (Trace && a.trace.inverse)
      for (int k = warp + 1; k < 4; ++k) trace_block(a.trace.inverse, warp, k, nullptr);
  }

  // ---------------------------------------------------------------- a chunk

  /// All of it. \param meanwhile  what two of the warps do for chunks to come
  template <class Meanwhile> __device__ void prepare(const Meanwhile& meanwhile) const {
    spread();
    const int count = chunk().count();
    Memory::wait_full(at, n);
    if (count < kChunk) clear_rows<128>(block + key(), 2 * D / 64, count, static_cast<int>(thread));
    barrier();  // the numbers are there, and the zeros beyond the end
    const bool mixes = a.lambda.data != nullptr;
    float M[32];
    multiply_rows(M, key() + Memory::kQuery, 0);  // Q K^T
    const Decays d = decays();                    // under the products
    wait_products<0>();
    pin(M);
    if (a.l2norm) take_norms(), scale(M, numbers().query_norm, numbers().key_norm);
    score<false>(M, d, static_cast<float>(a.scale));
    if (mixes) {
      const float* const lambda = factors().lambda;
      const TokenNumbers& of = numbers();
      const Place p = place();
      const float share[2] = {lambda[p.first + p.g], lambda[p.first + p.g + 8]};
#pragma unroll
      for (int e = 0; e < 32; ++e) M[e] *= share[e / 2 % 2];
      if (a.l2norm)  // lambda has |k_i| / |q_i| in it, and M both of its own
#pragma unroll
        for (int e = 0; e < 32; ++e)
          M[e] *= of.key_length[e / 4 * 8 + 2 * p.t + e % 2] / of.query_norm[p.first + p.g + e / 2 % 2 * 8];
    }
    pin(M);
    multiply_rows(M, key(), mixes);  // X K^T = diag(lambda) Q K^T + K K^T
    wait_products<0>();
    pin(M);
    if (a.l2norm) scale(M, numbers().key_norm, numbers().key_norm);
    // The chain may still multiply with the A that lies where L comes.
    if (n >= Memory::kTeams) wait(at + Memory::kUsed + 8 * team(), (n / Memory::kTeams - 1) & 1);
    score<true>(M, d, a.reads_key ? 1.f : 0.f);
    __syncwarp();
    substitute();
    invert(meanwhile);
    fence_shared();
    arrive(at + Memory::kReady + 8 * team());  // each thread for what it wrote
  }

  /// Writes the lane's numbers of block (m, k) of a [C, C] matrix; zeros without them.
  __device__ void trace_block(void* to, int m, int k, const float* numbers) const {
    const Place p = place();
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int i = 16 * m + p.g + e / 2 % 2 * 8, j = 16 * k + e / 4 * 8 + 2 * p.t + e % 2;
      static_cast<float*>(to)[(chunk().place * kChunk + i) * kChunk + j] = numbers ? numbers[e] : 0;
    }
  }
};

/// A team, from the block's first chunk to its last. While it prepares chunk n, warp 0 sums up the decays of n + 2, and
/// warp 2 asks for the gates of n + 4 and finds chunk n + 6.
template <class In, int D, bool Trace>
__device__ void prepare_alone(const Arguments& a, const Shape& shape, unsigned char* block, int team) {
  using Memory = AloneShared<D>;
  const unsigned thread = threadIdx.x % 128, lane = thread % 32;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(thread / 32), 0);
  using Team = AloneTeam<In, D, Trace>;
  unsigned n = static_cast<unsigned>(team);
  if (warp == 0) {
    const Team first{a, block, n, thread, warp};
    first.ask(), wait_copies<0>();
    __syncwarp();
    first.sum();
  } else if (warp == 2) {
    Team{a, block, n + Memory::kTeams, thread, warp}.ask();
  }
  team_barrier(1 + team);
  for (; Memory::chunk(block, n).left > 0; n += Memory::kTeams) {
    if (warp == 2) wait_copies<0>();
    Team{a, block, n, thread, warp}.prepare([&](int by) {
      const unsigned next = n + Memory::kTeams, after = next + Memory::kTeams;
      if (by == 0) return Team{a, block, next, thread, warp}.sum();
      Team{a, block, after, thread, warp}.ask();
      const Chunk x = Memory::chunk(block, after).next(a, shape, Memory::kTeams);
      __syncwarp();
      if (lane == 0) Memory::chunk(block, after + Memory::kTeams) = x;
    });
  }
}

}  // namespace delta::gpu
