// SPDX-License-Identifier: Apache-2.0
// What a team of v7 prepares: of a chunk, what the state does not enter.
#pragma once
#include "gpu/kernels/v7_block.cuh"

namespace delta::gpu {

/// Log decays, to base 2, are summed up as integers, in this unit: exactly, in any order. fp64 would do as well,
/// but waits for the tensor cores; only the logarithm of a decay that was given as such still needs it.
constexpr float kUnit = 0x1p-40f;
/// A log decay in units, clamped both ways, so that sums of 64 fit 64 bits: they are at most 2^57. Below kResetLog,
/// where decays are 0 in fp32, all are the same reset.
/// \param gate  a decay, or its natural log
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
  int g, t;  ///< as in hopper.cuh
  __device__ explicit Place(unsigned in_team) : thread(anew(in_team)), lane(thread % 32) {
    g = static_cast<int>(lane / 4), t = static_cast<int>(lane % 4);
  }
};

/// Four warps prepare a chunk: the scores P; of A = (I + L)^{-1} the two diagonal squares of 32; and -L between them.
/// \f[ L = \mathrm{sl}(c\,H \odot X K^\top)\,B, \quad X K^\top = K K^\top + \mathrm{diag}(\lambda)\,Q K^\top, \quad
///     P = \mathrm{scale}\,(H \odot Q K^\top)\,B \f]
/// X itself is not needed, here or by the chain: lambda is a factor of rows of Q K^T. A warp has 16 rows of what it
/// multiplies, and of A and L a block of 16 x 16 at a time. What bounds a team is the number of times that it waits for
/// shared memory, which is busy with operands of products; so what is known to be needed is asked for together.
/// \formula{F37} \formula{F38} \formula{F83}
template <class In, int D, bool Trace> struct AloneTeam {
  using Memory = AloneShared<D>;
  const Arguments& a;
  const AllMaps& maps;
  const Shape& shape;
  unsigned char* const block;  ///< shared memory
  const unsigned n;            ///< the chunk's number
  const unsigned thread;       ///< of the team
  const int warp;
  const std::uint32_t at = shared_address(block);

  __device__ AloneTeam of_chunk(unsigned m) const { return {a, maps, shape, block, m, thread, warp}; }
  __device__ Place place() const { return Place(thread); }
  __device__ int first() const { return 16 * warp; }  ///< of the warp's rows
  /// The chunk's number, asked for anew for the same reason.
  __device__ unsigned number_of_chunk() const { return anew(n); }
  __device__ int team() const { return static_cast<int>(number_of_chunk() % Memory::kTeams); }
  __device__ int stage() const { return static_cast<int>(number_of_chunk() % Memory::kStages); }
  __device__ int key() const { return Memory::kKey + stage() * Memory::kStage; }
  __device__ int scores() const {
    return Memory::kScores + static_cast<int>(number_of_chunk() % Memory::kScored) * kTileBytes;
  }
  __device__ int squares() const { return Memory::kSquares + team() * 3 * Memory::kSquareBytes32; }
  __device__ const Chunk& chunk() const { return Memory::chunk(block, n); }
  __device__ TokenInputs& given() const { return Memory::given(block, n); }
  __device__ TokenNumbers& numbers() const { return Memory::numbers(block, number_of_chunk()); }
  __device__ TokenFactors& factors() const { return Memory::factors(block, number_of_chunk()); }
  __device__ void barrier() const { team_barrier(1 + team()); }

  // ---------------------------------------------------------------- what is asked for, by one warp

  /// K and Q.
  __device__ void load_keys() const {
    const Chunk& x = chunk();
    if (x.left == 0) return;
    const std::uint32_t to = at + static_cast<unsigned>(key()), full = Memory::full(at, number_of_chunk());
    expect_bytes(full, Memory::kStage);
    load_tiles(to, maps.k, x.token, x.key_head, x.batch, full);
    load_tiles(to + Memory::kQuery, maps.q, x.token, x.key_head, x.batch, full);
    arrive_once(full);
  }
  __device__ void load_values() const {
    const Chunk& x = chunk();
    if (x.left == 0) return;
    const std::uint32_t full = Memory::of_team(at, Memory::kValueFull, number_of_chunk());
    expect_bytes(full, shape.warpgroups * kTileBytes);
    load_tiles(at + static_cast<unsigned>(Memory::value(shape.warpgroups, 0, n)), maps.v, x.token, x.head, x.batch,
               full);
    arrive_once(full);
  }
  /// The chain leaves o where V was. Where rows lie beyond the end it stores it itself: another sequence may follow.
  __device__ void store_outputs() const {
    const Chunk& x = chunk();
    fence_shared();  // o, and zeros of V beyond an end, were written by ordinary stores, of the chain's warps
    if (x.left >= kChunk)
      store_tiles(maps.o, at + static_cast<unsigned>(Memory::value(shape.warpgroups, 0, n)), x.token, x.head, x.batch);
  }
  /// Gates, betas and lambdas.
  __device__ void load_inputs() const {
    const Chunk& x = chunk();
    const int i = static_cast<int>(2 * (thread % 32)), count = x.count();
    const auto copy = [&](const Rows& rows, float* into) {
      if (!rows.data) return;
      const float* const from = static_cast<const float*>(rows.data) + x.batch * rows.stride_b +
                                (x.token + i) * rows.stride_t + x.head * rows.stride_h;
      const std::uint32_t to = shared_address(into + i);
      if (i < count) copy_number(to, from);
      if (i + 1 < count) copy_number(to + 4, from + rows.stride_t);
    };
    TokenInputs& given = this->given();
    copy(a.g, given.gate), copy(a.beta, given.beta), copy(a.lambda, given.lambda);
    commit_copies();
  }

  // ---------------------------------------------------------------- numbers

  /// Sums up the decays, and makes of them what is needed of a token, or of one and the first of a later block: the
  /// columns. By one warp: a lane has two tokens.
  __device__ void sum() const {
    const int lane = static_cast<int>(thread % 32), count = chunk().count();
    float gate[2];
#pragma unroll
    for (int e = 0; e < 2; ++e)
      gate[e] = a.g.data && 2 * lane + e < count ? given().gate[2 * lane + e] : a.gate_is_log ? 0 : 1;
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
    const bool broken_before = (__ballot_sync(0xffffffffu, broken[1]) & (1u << lane) - 1) != 0;
    float high[2], low[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      high[e] = __ll2float_rn(G[e]), low[e] = __ll2float_rn(G[e] - __float2ll_rn(high[e])) * kUnit;
      high[e] = broken_before || broken[e] ? NAN : high[e] * kUnit;  // a NaN stays one, for all tokens from there on
    }
    const float last[2] = {__shfl_sync(0xffffffffu, high[1], 31), __shfl_sync(0xffffffffu, low[1], 31)};
    float beta[2], gamma[2], read[2], output[2], write[2], lambda[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int i = 2 * lane + e;
      beta[e] = i >= count ? 0 : a.beta.data ? given().beta[i] : 1;
      lambda[e] = a.lambda.data && i < count ? given().lambda[i] : 0;
      gamma[e] = power_of_two(high[e]);
      read[e] = a.reads_key ? -gamma[e] : 0, output[e] = static_cast<float>(a.scale) * gamma[e];
      write[e] = beta[e] * power_of_two((last[0] - high[e]) + (last[1] - low[e]));
      if (Trace && a.trace.gamma && i < count)
        static_cast<float*>(a.trace.gamma)[chunk().place * kChunk + i] = gamma[e];
    }
    TokenNumbers& of = numbers();
    TokenFactors& factors = this->factors();
    const auto put = [lane](float* to, const float(&x)[2]) { put_two(to + 2 * lane, x[0], x[1]); };
    put(of.high, high), put(of.low, low), put(of.beta, beta);
    put(factors.read, read), put(factors.output, output), put(factors.write, write), put(factors.lambda, lambda);
    if (lane == 31) factors.gamma[0] = gamma[1];
#pragma unroll
    for (int b = 1; b < 4; ++b) {
      const float first[2] = {__shfl_sync(0xffffffffu, high[0], 8 * b), __shfl_sync(0xffffffffu, low[0], 8 * b)};
      float column[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) column[e] = power_of_two((first[0] - high[e]) + (first[1] - low[e])) * beta[e];
      if (lane < 8 * b) put(of.columns + TokenNumbers::column(b), column);
    }
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
    for (int e = 0; e < 32; ++e) M[e] *= rows[first() + p.g + row_of(e)] * columns[2 * p.t + column_of(e)];
  }

  /// diag(lambda) M, for M = Q K^T of the rows as they lie in memory: norms are taken back out.
  __device__ void mix(float (&M)[32]) const {
    const float* const lambda = factors().lambda;
    const TokenNumbers& of = numbers();
    const Place p = place();
    const float share[2] = {lambda[first() + p.g], lambda[first() + p.g + 8]};
#pragma unroll
    for (int e = 0; e < 32; ++e) M[e] *= share[e / 2 % 2];
    if (a.l2norm)  // lambda has |k_i| / |q_i| in it, and M both of its own
#pragma unroll
      for (int e = 0; e < 32; ++e)
        M[e] *= of.key_length[2 * p.t + column_of(e)] / of.query_norm[first() + p.g + row_of(e)];
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

  /// Block (i, j) of P to its tile, rounded.
  __device__ void put_scores(int i, int j, const float (&x)[8]) const {
    const unsigned lane = place().lane;
    std::uint32_t packed[4];
    as_operand<In>(packed, four(x), four(x + 4));
    const std::uint32_t origin =
        at + static_cast<unsigned>(scores() + 2048 * i) + lane % 16 * 128 + (lane % 8 ^ lane / 16) * 16;
    store_matrices(origin ^ static_cast<unsigned>(32 * j), packed);
  }
  /// Where a piece of a row of block (i, j), of A or of -L, lies. A row's numbers lie in the order that `multiply_tf32`
  /// wants: of eight the even ones, a piece of 16 bytes, then the odd ones. So of a block the other parity is at ^ 16,
  /// and the other eight columns are at ^ 32. Two rows of blocks, of 2048 bytes, fill a square, and kMinusL21, which is
  /// left of kA22, lies between the other two: that is all of (i, j) -> square.
  __device__ unsigned piece_of(int i, int j, unsigned row, unsigned piece) const {
    const unsigned tile = static_cast<unsigned>(squares() + 2048 * i + j / 2 * Memory::kSquareBytes32);
    return tile + row * 128 + ((static_cast<unsigned>(j % 2 * 4) + piece) ^ row % 8) * 16;
  }
  template <bool Rounded> __device__ void put(int i, int j, const float (&x)[8]) const {
    const unsigned lane = place().lane;
    const std::uint32_t to = at + piece_of(i, j, lane / 16 * 8 + lane % 8, lane / 8 % 2);
    std::uint32_t words[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) words[e] = Rounded ? as_tf32(x[e]) : __float_as_uint(x[e]);
    store_matrices(to, words), store_matrices(to ^ 32, words + 4);
  }
  /// Block (i, j) as the A of `multiply_blocks`.
  __device__ void get_left(std::uint32_t (&m)[8], int i, int j) const {
    const unsigned lane = place().lane;
    const std::uint32_t from = at + piece_of(i, j, lane / 8 % 2 * 8 + lane % 8, lane / 16);
    load_matrices(four(m), from);
    load_matrices(four(m + 4), from ^ 32);
  }
  /// Block (i, j) as its B.
  __device__ void get_right(std::uint32_t (&m)[8], int i, int j) const {
    const Place p = place();
    const unsigned g = static_cast<unsigned>(p.g), t = static_cast<unsigned>(p.t);
    const std::uint32_t from = at + piece_of(i, j, 2 * t, g % 2) + g / 2 * 4;
#pragma unroll
    for (unsigned k = 0; k < 2; ++k)
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        m[4 * k + 2 * half] = load_word((from ^ 32 * half) + 1024 * k);
        m[4 * k + 2 * half + 1] = load_word((from ^ 32 * half ^ 16) + 128 + 1024 * k);
      }
  }
  /// X += M N.
  __device__ static void multiply_blocks(float (&X)[8], const std::uint32_t (&M)[8], const std::uint32_t (&N)[8]) {
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        mma_tf32(four(X + 4 * half), four(M + 4 * k), N[4 * k + 2 * half], N[4 * k + 2 * half + 1]);
  }
  /// What decays make of a thread's numbers in the warp's rows.
  struct Decays {
    float late[2];      ///< of rows g and g + 8: the decay from the first of the warp's rows to them
    float diagonal[8];  ///< H B in the diagonal block
  };
  __device__ Decays decays() const {
    const Place p = place();
    const TokenNumbers& of = numbers();
    Decays d;
    float2 G[2], high[2], low[2], beta[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      G[h] = make_float2(of.high[first() + p.g + 8 * h], of.low[first() + p.g + 8 * h]);
      d.late[h] = power_of_two((G[h].x - of.high[first()]) + (G[h].y - of.low[first()]));
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int j = first() + 8 * m + 2 * p.t;
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
  /// `TokenNumbers::columns` for block k, left of the diagonal block: a thread's pairs in two times eight. For other k
  /// some numbers, which `score` leaves alone.
  __device__ void get_columns(float (&c)[4], int k) const {
    const Place p = place();
    const float* const from = numbers().columns + TokenNumbers::column(warp) + 2 * p.t + (k < warp ? 16 * k : 0);
    const float2 x = two(from), y = two(from + 8);
    c[0] = x.x, c[1] = x.y, c[2] = y.x, c[3] = y.y;
  }
  /// From the warp's rows of Q K^T: P; or (OfL) from those of X K^T: -L.
  /// Left of the diagonal block H_ij is (the decay from the block's first token to i) (the decay from j to that token),
  /// neither of which exceeds 1.
  template <bool OfL> __device__ void score(const float (&M)[32], const Decays& d, float factor) const {
    const Place p = place();
    const float late[2] = {d.late[0] * factor, d.late[1] * factor};
    float columns[3][4];
#pragma unroll
    for (int k = 0; k < 3; ++k) get_columns(columns[k], k);
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      if (k < warp) {
        float x[8];
#pragma unroll
        for (int e = 0; e < 8; e += 2) {
          const float* const c = columns[k] + e / 4 * 2;
          x[e] = c[0] * late[e / 2 % 2] * M[8 * k + e], x[e + 1] = c[1] * late[e / 2 % 2] * M[8 * k + e + 1];
        }
        if (OfL)
          put<true>(warp, k, x), trace_block(a.trace.L_g, warp, k, x, -1);
        else
          put_scores(warp, k, x);
      }
    }
    float diagonal[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      // M[8 * warp + e], written so that M stays in registers.
      const float m = warp < 2 ? (warp == 0 ? M[e] : M[8 + e]) : warp == 2 ? M[16 + e] : M[24 + e];
      const int i = p.g + row_of(e), j = 2 * p.t + column_of(e);
      diagonal[e] = (OfL ? j >= i : j > i) ? 0 : d.diagonal[e] * factor * m;
    }
    if (OfL) {
      put<false>(warp, warp, diagonal);  // in fp32: so `substitute` solves it
      for (int k = warp; k < 4; ++k) trace_block(a.trace.L_g, warp, k, diagonal, k == warp ? -1 : 0);
    } else {
      put_scores(warp, warp, diagonal);
    }
  }

  // ---------------------------------------------------------------- the inverse

  /// A = (I + L)^{-1} of the warp's diagonal block, in the place of -L. Its two halves on the diagonal by forward
  /// substitution, a lane a column; then the quarter below them, (A_22 (-L_21)) A_11.
  __device__ void substitute() const {
    const Place p = place();
    const unsigned half = p.lane / 8 % 2, c = p.lane % 8;
    const auto entry = [this](unsigned i, unsigned piece, unsigned of_piece) -> float& {
      return reinterpret_cast<float*>(block + piece_of(warp, warp, i, piece))[of_piece];
    };
    const unsigned row = static_cast<unsigned>(p.g), pair = static_cast<unsigned>(2 * p.t);
    // -L_21 as a B, for the product below.
    const std::uint32_t N[2] = {as_tf32(entry(8 + pair, row % 2, row / 2)), as_tf32(entry(9 + pair, row % 2, row / 2))};
    float l[8][2][4];  // -L of the lane's half: a row, its even and odd numbers
#pragma unroll
    for (unsigned i = 1; i < 8; ++i)
#pragma unroll
      for (unsigned odd = 0; odd < 2 && odd < i; ++odd) {
        const float* const from = &entry(8 * half + i, 2 * half + odd, 0);
        float* const to = l[i][odd];
        const unsigned before = (i + 1 - odd) / 2;  // of that parity, left of the diagonal
        if (before <= 2) {
          const float2 x = two(from);
          to[0] = x.x, to[1] = x.y;
        } else {
          const float4 x = *reinterpret_cast<const float4*>(from);
          to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
        }
      }
    float column[8];
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) column[i] = i == c ? 1 : 0;
#pragma unroll
    for (unsigned j = 0; j < 7; ++j)  // a number goes into all that follow as soon as it is found
#pragma unroll
      for (unsigned i = j + 1; i < 8; ++i) column[i] += l[i][j % 2][j / 2] * column[j];
    __syncwarp();
    if (p.lane < 16)
#pragma unroll
      for (unsigned i = 0; i < 8; ++i)
        entry(8 * half + i, 2 * half + c % 2, c / 2) = __uint_as_float(as_tf32(column[i]));
    __syncwarp();
    const auto word = [&](unsigned i, unsigned which, unsigned of_piece) {
      return __float_as_uint(entry(i, which, of_piece));
    };
    std::uint32_t left[4] = {word(8 + row, 2, pair / 2), 0, word(8 + row, 3, pair / 2), 0};
    const std::uint32_t right[2] = {word(pair, row % 2, row / 2), word(pair + 1, row % 2, row / 2)};
    float Y[4] = {}, X[4] = {};
    mma_tf32(Y, left, N[0], N[1]);
    as_tf32(left, Y);
    mma_tf32(X, left, right[0], right[1]);
    __syncwarp();
    entry(8 + row, 0, pair / 2) = __uint_as_float(as_tf32(X[0]));
    entry(8 + row, 1, pair / 2) = __uint_as_float(as_tf32(X[1]));
    __syncwarp();
  }
  /// A of the squares of two blocks of 16 x 16. What the two diagonal blocks of a square leave is one product more, of
  /// its second warp: A_21 = (A_22 (-L_21)) A_11.
  __device__ void invert() const {
    std::uint32_t A_22[8], minus_L_21[8], A_11[8], operand[8];
    get_left(A_22, warp, warp), get_right(minus_L_21, warp, warp - 1), get_right(A_11, warp - 1, warp - 1);
    float between[8] = {}, A_21[8] = {};
    multiply_blocks(between, A_22, minus_L_21);
    as_tf32(operand, between), as_tf32(operand + 4, between + 4);
    multiply_blocks(A_21, operand, A_11);
    __syncwarp();
    put<true>(warp, warp - 1, A_21);
  }
  /// Both squares, and 0 right and left of them.
  __device__ void trace_inverse() const {
    if (!Trace || !a.trace.inverse) return;
    __syncwarp();
    const Place p = place();
    for (int j = 0; j < 4; ++j) {
      float x[8];
      for (int e = 0; e < 8; ++e) {
        const unsigned row = static_cast<unsigned>(p.g + row_of(e)), piece = static_cast<unsigned>(e / 4 * 2 + e % 2);
        x[e] = reinterpret_cast<const float*>(block + piece_of(warp, j, row, piece))[p.t];
      }
      trace_block(a.trace.inverse, warp, j, x, j / 2 == warp / 2 ? 1 : 0);
    }
  }

  // ---------------------------------------------------------------- a chunk

  /// Until the chain is through with the chunk so many before.
  __device__ void wait_finished(unsigned before) const {
    if (n >= before) Memory::wait_finished(at, n - before);
  }
  /// All of it, and by warps 0 and 2 what chunks to come need.
  __device__ void prepare() const {
    const int count = chunk().count();
    Memory::wait_full(at, n);
    if (count < kChunk) {
      clear_rows<128>(block + key(), 2 * D / 64, count, static_cast<int>(thread));
      barrier();
    }
    const bool mixes = a.lambda.data != nullptr;
    float M[32];
    multiply_rows(M, key() + Memory::kQuery, 0);  // Q K^T
    barrier();                                    // the numbers are there
    const Decays d = decays();                    // under the products
    wait_products<0>();
    pin(M);
    if (a.l2norm) take_norms(), scale(M, numbers().query_norm, numbers().key_norm);
    wait_finished(3);  // its P gives way
    score<false>(M, d, static_cast<float>(a.scale));
    if (mixes) mix(M);
    pin(M);
    multiply_rows(M, key(), mixes);  // X K^T = diag(lambda) Q K^T + K K^T
    wait_products<0>();
    pin(M);
    if (a.l2norm) scale(M, numbers().key_norm, numbers().key_norm);
    wait_finished(2);  // its squares and tiles give way
    if (warp == 0) {
      of_chunk(n + Memory::kTeams).load_keys();
      if (n >= Memory::kTeams) of_chunk(n - Memory::kTeams).store_outputs();
    }
    score<true>(M, d, a.reads_key ? -1.f : 0.f);
    if (warp == 0 && n >= Memory::kTeams) wait_stores_read(), load_values();  // of this chunk: its place is free now
    __syncwarp();
    substitute();
    wait_copies<0>();  // the gates of n + 2, for warp 2, which asked for them: warp 0 sums them up when all have met
    barrier();
    if (warp % 2 == 1) invert();
    trace_inverse();
    fence_shared();
    arrive(Memory::of_team(at, Memory::kReady, number_of_chunk()));  // each thread for what it wrote
    if (warp == 0) of_chunk(n + Memory::kTeams).sum();
    if (warp == 2) {
      of_chunk(n + 2 * Memory::kTeams).load_inputs();
      const Chunk x = of_chunk(n + 2 * Memory::kTeams).chunk().next(a, shape, Memory::kTeams);
      __syncwarp();
      if (thread % 32 == 0) Memory::chunk(block, n + 3 * Memory::kTeams) = x;
    }
  }

  /// Writes sign times the lane's numbers of block (m, k) of a [C, C] matrix, if that is traced.
  __device__ void trace_block(void* to, int m, int k, const float (&x)[8], int sign) const {
    if (!Trace || !to) return;
    const Place p = place();
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int i = 16 * m + p.g + row_of(e), j = 16 * k + 2 * p.t + column_of(e);
      static_cast<float*>(to)[(chunk().place * kChunk + i) * kChunk + j] = sign == 0 ? 0 : sign * x[e];
    }
  }
};

/// What a team needs first it asks for before the block meets, for device memory takes a while; and its other chunks it
/// finds, up to n + 4.
template <class In, int D, bool Trace>
__device__ void begin_alone(const Arguments& a, const AllMaps& maps, const Shape& shape, unsigned char* block,
                            int team) {
  using Memory = AloneShared<D>;
  const unsigned thread = threadIdx.x % 128, n = static_cast<unsigned>(team);
  const int warp = uniform(static_cast<int>(thread / 32));
  if (warp < 3) {
    const Chunk x = Chunk::of_part(a, shape, blockIdx.x).next(a, shape, team + Memory::kTeams * warp);
    if (thread % 32 == 0) Memory::chunk(block, n + Memory::kTeams * warp) = x;
  } else if (thread % 32 == 0) {
    const std::uint32_t at = shared_address(block);
    // Who arrives: at `full` and `value_full` who asks; at `ready` all threads; at `turn` the warps of
    // the first warpgroup; at `finished` those of the chain.
    for (int i = team; i < Memory::kStages; i += Memory::kTeams) init_barrier(at + Memory::kFull + 8 * i, 1);
    init_barrier(at + Memory::kReady + 8 * team, 128);
    init_barrier(at + Memory::kValueFull + 8 * team, 1);
    init_barrier(at + Memory::kTurn + 8 * team, 4);
    for (int i = team; i < Memory::kWaitedFor; i += Memory::kTeams)
      init_barrier(at + Memory::kFinished + 8 * i, 4 * shape.warpgroups);
    publish_barriers();
  }
  team_barrier(1 + team);
  const AloneTeam<In, D, Trace> first{a, maps, shape, block, n, thread, warp};
  if (warp == 0) first.load_inputs();
  if (warp == 2 && team == 0) first.load_keys(), first.load_values();
}

/// A team, from the block's first chunk to its last. At chunk n it asks for K and Q of n + 2, brings o of n - 2 away
/// and asks for V of n, sums up the decays of n + 2, asks for the gates of n + 4, and finds chunk n + 6.
template <class In, int D, bool Trace>
__device__ void prepare_alone(const Arguments& a, const AllMaps& maps, const Shape& shape, unsigned char* block,
                              int team) {
  using Memory = AloneShared<D>;
  using Team = AloneTeam<In, D, Trace>;
  const unsigned thread = threadIdx.x % 128;
  const int warp = uniform(static_cast<int>(thread / 32));
  unsigned n = static_cast<unsigned>(team);
  const Team first{a, maps, shape, block, n, thread, warp};
  if (warp == 0) {
    wait_copies<0>();
    __syncwarp();
    first.sum();
  } else if (warp == 2) {
    first.of_chunk(n + Memory::kTeams).load_inputs();
    // The second chunk's tiles, when the first's have come: asked for together, both would come when the last does. By
    // team 0, for the barrier to wait for is its own: to team 1 it could be two phases on.
    const Team second = first.of_chunk(1);
    if (team == 0 && second.chunk().left > 0) {
      Memory::wait_full(shared_address(block), 0);
      second.load_keys(), second.load_values();
    }
  }
  for (; Memory::chunk(block, n).left > 0; n += Memory::kTeams) first.of_chunk(n).prepare();
  if (warp == 0 && n >= Memory::kTeams) {  // o of its last chunk
    Memory::wait_finished(shared_address(block), n - Memory::kTeams);
    first.of_chunk(n - Memory::kTeams).store_outputs();
    wait_stores_read();
  }
}

}  // namespace delta::gpu
