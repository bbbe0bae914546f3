// SPDX-License-Identifier: Apache-2.0
// The producer of v5: what a chunk needs and the state does not enter.
#pragma once
#include "gpu/kernels/pairs.cuh"
#include "gpu/kernels/v5_cluster.cuh"

namespace delta::gpu {

/// A team of four warps prepares a chunk. With H_ij the decay from token j to token i and G = sl(c H . X K^T),
/// \f[ X = K + \mathrm{diag}(\lambda)\,Q, \quad L = \mathrm{sl}(c\,H \odot X K^\top)\,B, \quad A = (I + L)^{-1}, \quad
///     W = A D_a X, \quad P = \mathrm{scale}\,(H \odot Q K^\top)\,B, \f]
/// T = A rounded and D_a = c D_g, so that E = T V - W S^T and O = scale D_g Q S^T + P E is all that is left for the
/// chain. Beta stands on the right, (I + B G)^{-1} B = B (I + G B)^{-1}, and belongs to what is done with the errors E.
///
/// A warp has the rows 16 w .. 16 w + 15 of what it multiplies.
///
/// \formula{F37} \formula{F38} \formula{F83}
template <class In, int D, bool Lambda, bool Trace> struct Team {
  using Memory = TeamShared<D>;
  /// Where the rows of X are, and -A D_a: over whichever of K and Q is needed no more.
  static constexpr int kRows = Lambda ? Memory::kQuery : Memory::kKey, kReader = Lambda ? Memory::kKey : Memory::kQuery;
  const Arguments& a;
  unsigned char* const block;  ///< shared memory of the block
  const int id;                ///< of the team
  const unsigned turn;         ///< how many chunks it prepared before this one

  const unsigned thread = threadIdx.x % 128, lane = thread % 32;
  const int warp = static_cast<int>(__shfl_sync(0xffffffffu, thread / 32, 0)), first = 16 * warp;
  const int g = static_cast<int>(lane / 4), t = static_cast<int>(lane % 4);
  unsigned char* const memory = block + Memory::memory(id);
  const std::uint32_t at = shared_address(memory), barriers = shared_address(block) + Memory::barriers(id);
  Numbers& of = reinterpret_cast<Numbers*>(memory + Memory::kNumbers)[turn & 1];

  __device__ void barrier() const { team_barrier(1 + id); }
  /// Stores block (i, j), 16 x 16, of a tile.
  __device__ void store_block(int tile, int i, int j, const std::uint32_t (&x)[4]) const {
    const unsigned row = lane % 16, piece = row % 8 ^ lane / 16;  // a lane gives the address of one row
    store_matrices(
        at + static_cast<unsigned>(tile + 2048 * i) + row * 128 + (piece ^ static_cast<unsigned>(2 * j)) * 16, x);
  }
  /// Two neighbouring numbers.

  /// 1 / sqrt(|x|^2 + eps) of the row of K or Q that is the thread's; 1 for rows of zeros, as are those beyond the end.
  __device__ void take_norms() const {
    const unsigned i = thread % kChunk;
    const unsigned char* const tile = memory + (thread < kChunk ? Memory::kKey : Memory::kQuery) + i * 128;
    float sum = 0;
    for (unsigned piece = 0; piece < D / 8; ++piece) {
      const In* const x = reinterpret_cast<const In*>(tile + piece / 8 * kTileBytes + ((piece % 8 ^ (i & 7)) << 4));
      for (int e = 0; e < 8; ++e) sum += number<float>(x[e]) * number<float>(x[e]);
    }
    (thread < kChunk ? of.key_norm : of.query_norm)[i] = sum > 0 ? 1 / sqrtf(sum + static_cast<float>(a.eps)) : 1;
  }
  /// Norms are factors of rows and columns, and of the numbers of the warp's own tokens: nothing is rounded for them.
  __device__ void apply_norms(float (&XK)[32], float (&QK)[32], Factors& factors) const {
#pragma unroll
    for (int e = 0; e < 32; ++e) {
      const int i = first + g + e / 2 % 2 * 8, j = e / 4 * 8 + 2 * t + e % 2;
      XK[e] *= of.key_norm[i] * of.key_norm[j], QK[e] *= of.query_norm[i] * of.key_norm[j];
    }
    if (lane >= 16) return;
    const int i = first + static_cast<int>(lane);  // `invert` reads no others before the team meets
    of.read[i] *= of.key_norm[i];
    factors.output[i] *= of.query_norm[i], factors.write[i] *= of.key_norm[i];
  }

  /// X = K + diag(lambda) Q over Q, two numbers an instruction: lambda is rounded like an input, and each sum once.
  /// Rows that are still to be normalised are k + lambda |k| / |q| q, with the norm of k for a factor.
  __device__ void mix_rows() const {
    barrier();  // nobody multiplies with Q any more, and the norms are there
#pragma unroll 2
    for (unsigned piece = thread; piece < kChunk * D / 8; piece += 128) {
      const unsigned i = piece / 8 % kChunk;
      const float share = a.l2norm ? of.lambda[i] * of.query_norm[i] / of.key_norm[i] : of.lambda[i];
      const std::uint32_t lambda = pack<In>(share, share);
      const uint4 k = *reinterpret_cast<const uint4*>(memory + Memory::kKey + 16 * piece);
      uint4& q = *reinterpret_cast<uint4*>(memory + Memory::kQuery + 16 * piece);
      q = make_uint4(multiply_add<In>(lambda, q.x, k.x), multiply_add<In>(lambda, q.y, k.y),
                     multiply_add<In>(lambda, q.z, k.z), multiply_add<In>(lambda, q.w, k.w));
    }
    fence_shared();
    barrier();
  }

  /// From the warp's rows of X K^T and Q K^T: P and the blocks of L left of the diagonal to shared memory, the diagonal
  /// block of L to `diagonal`, fp32.
  /// Left of the diagonal block H_ij is (the decay from the block's first token to i) (the decay from j to that token),
  /// neither of which exceeds 1.
  __device__ void score(const float (&XK)[32], const float (&QK)[32], const Walk& x, float* diagonal) const {
    const float scale = static_cast<float>(a.scale), reads = a.reads_key ? 1 : 0;
    float late_output[2], late_read[2];  // a row's factor of P and of L, times the decay from the block's first token
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float fall = of.since[first + g + 8 * h];
      late_output[h] = fall * scale, late_read[h] = fall * reads;
    }
    float own_XK[8], own_QK[8];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float L[8], P[8];
      if (k < warp) {
        std::uint32_t packed[4];
#pragma unroll
        for (int e = 0; e < 8; e += 2) {
          const float2 c = two(of.columns[warp - 1] + 16 * k + e / 4 * 8 + 2 * t);
          const float output = late_output[e / 2 % 2], read = late_read[e / 2 % 2];
          P[e] = c.x * output * QK[8 * k + e], P[e + 1] = c.y * output * QK[8 * k + e + 1];
          L[e] = c.x * read * XK[8 * k + e], L[e + 1] = c.y * read * XK[8 * k + e + 1];
          packed[e / 2] = pack<In>(P[e], P[e + 1]);
        }
        put_block(solve_block(warp, k), split<__nv_bfloat16>(four(L), four(L + 4)));
        store_block(Memory::kP, warp, k, packed);
      } else if (k == warp) {
#pragma unroll
        for (int e = 0; e < 8; ++e) own_XK[e] = XK[8 * k + e], own_QK[e] = QK[8 * k + e];
      }
      if (Trace && a.trace.L_g) trace_block(a.trace.L_g, x, warp, k, k < warp ? L : nullptr);
    }
    float2 high[2], low[2], beta[2], G[2];  // G: of the lane's rows, rounded, and the rest
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int j = first + 8 * m + 2 * t;
      high[m] = two(of.high + j), low[m] = two(of.low + j), beta[m] = two(of.beta + j);
      G[m] = make_float2(of.high[first + g + 8 * m], of.low[first + g + 8 * m]);
    }
    float P[8], L[8];
    std::uint32_t packed[4];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int h = e / 2 % 2, m = e / 4, i = g + 8 * h, j = 8 * m + 2 * t + e % 2;
      auto column = [&](const float2(&x)[2]) { return e % 2 ? x[m].y : x[m].x; };
      const float HB = power_of_two((G[h].x - column(high)) + (G[h].y - column(low))) * column(beta);
      P[e] = j > i ? 0 : HB * scale * own_QK[e];
      L[e] = j >= i ? 0 : HB * reads * own_XK[e];
    }
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
      packed[e / 2] = pack<In>(P[e], P[e + 1]);
      *reinterpret_cast<float2*>(diagonal + in_diagonal(g + e / 2 % 2 * 8, e / 4 * 8 + 2 * t)) =
          make_float2(L[e], L[e + 1]);
    }
    store_block(Memory::kP, warp, warp, packed);
    if (Trace && a.trace.L_g) trace_block(a.trace.L_g, x, warp, warp, L);
    __syncwarp();
  }

  /// A = (I + L)^{-1} of the diagonal block in place, by forward substitution: a lane has a column.
  __device__ void substitute(float* L) const {
    const int c = static_cast<int>(lane % 16);
    float column[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float sum = i == c ? 1 : 0;
#pragma unroll
      for (int j = 0; j < i; j += 4) {
        const float4 l = *reinterpret_cast<const float4*>(L + in_diagonal(i, j));
        sum -= l.x * column[j];
        if (j + 1 < i) sum -= l.y * column[j + 1];
        if (j + 2 < i) sum -= l.z * column[j + 2];
        if (j + 3 < i) sum -= l.w * column[j + 3];
      }
      column[i] = sum;
    }
    __syncwarp();
    if (lane < 16)
#pragma unroll
      for (int i = 0; i < 16; ++i) L[in_diagonal(i, c)] = column[i];
    __syncwarp();
  }

  /// Where block (i, j) of L is, whose place A's takes in squares of two; two more; and of -A D_a. W comes to lie over
  /// the first two.
  __device__ std::uint32_t solve_block(int i, int j) const {
    return at + Memory::kSolve + static_cast<unsigned>(i * (i + 1) / 2 + j) * kBlockBytes;
  }
  __device__ std::uint32_t block_between(int i) const {
    return at + Memory::kSolve + static_cast<unsigned>(10 + i) * kBlockBytes;
  }
  __device__ std::uint32_t reader_block(int i, int j) const {
    return at + kReader + static_cast<unsigned>(i * (i + 1) / 2 + j) * kBlockBytes;
  }
  /// Block (i, j) of A as it is used: rounded, T; its columns scaled, a block of -A D_a.
  __device__ void use_block(int i, int j, const float (&left)[4], const float (&right)[4], const Walk& x) const {
    std::uint32_t T[4];
    as_operand<In>(T, left, right);
    store_block(Memory::kT, i, j, T);
    const float2 c = two(of.read + 16 * j + 2 * t), d = two(of.read + 16 * j + 2 * t + 8);
    const Pair scaled = split<In>({left[0] * c.x, left[1] * c.y, left[2] * c.x, left[3] * c.y},
                                  {right[0] * d.x, right[1] * d.y, right[2] * d.x, right[3] * d.y});
    put_block(reader_block(i, j), scaled);
    if (Trace && a.trace.inverse) {
      const float row[8] = {left[0], left[1], left[2], left[3], right[0], right[1], right[2], right[3]};
      trace_block(a.trace.inverse, x, i, j, row);
    }
  }

  /// A from the diagonal outwards. Where the two diagonal quarters of a square of blocks are known, so is the third:
  /// \f[ A_{21} = -(A_{22} L_{21}) A_{11}, \f]
  /// for squares of two blocks and then of four, a block a warp, in the place of L. All blocks are pairs of bf16 (16
  /// bits), and no power of L appears: for repeated keys those reach 4.65e17. \formula{F38}
  __device__ void invert(const float* diagonal, const Walk& x) const {
    using bf16 = __nv_bfloat16;
    float left[4], right[4];
    read_diagonal(left, right, diagonal, g, t);
    __syncwarp();
    Pair own = split<bf16>(left, right);
    put_block(solve_block(warp, warp), own);
    barrier();  // and whatever gives way to -A D_a is used up
    use_block(warp, warp, left, right, x);
    if (warp % 2 == 1) {  // squares of two; no other warp wants the factor between
      clear(left, right), multiply_blocks(left, right, own, solve_block(warp, warp - 1));
      own = split<bf16>(left, right);
      clear(left, right), multiply_blocks(left, right, own, solve_block(warp - 1, warp - 1));
      negate(left, right);
      put_block(solve_block(warp, warp - 1), split<bf16>(left, right));
      use_block(warp, warp - 1, left, right, x);
    }
    barrier();
    const int i = 2 + warp / 2, j = warp % 2;  // the warp's block of the square of four
    clear(left, right);
#pragma unroll 1
    for (int k = 2; k <= i; ++k) multiply_blocks(left, right, get_block(solve_block(i, k)), solve_block(k, j));
    own = split<bf16>(left, right);
    if (j == 1) put_block(block_between(i - 2), own);
    barrier();
    clear(left, right), multiply_blocks(left, right, own, solve_block(j, j));
    if (j == 0) multiply_blocks(left, right, get_block(block_between(i - 2)), solve_block(1, 0));
    negate(left, right);
    use_block(i, j, left, right, x);
    if (Trace && a.trace.inverse)
      for (int k = warp + 1; k < 4; ++k) trace_block(a.trace.inverse, x, warp, k, nullptr);
  }

  /// -W = (-A D_a) X to shared memory. The warp's rows of -A D_a are a left operand in registers: as tiles, they would
  /// be read by the products once for every 64 columns, and what bounds a producer is shared memory.
  __device__ void transform() const {
    const std::uint32_t tiles = place_of(at);
    barrier();  // -A D_a is there, and nobody reads L and A any more
    Pair reader[4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (k <= warp) reader[k] = get_block(reader_block(warp, k));
    float W[D / 2];
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::uint64_t rows = rows_along_n(tiles, kRows + 2048 * k, kTileBytes);
      multiply_along_n<In>(W, reader[k].small, rows, k > 0);
      multiply_along_n<In>(W, reader[k].big, rows);
    }
    commit_products();
    wait_products<0>();
    pin(W);
    if (lane == 0) arrive(barriers + Memory::kEmptied);
#pragma unroll
    for (int m = 0; m < D / 16; ++m) {
      std::uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) packed[i] = pack<In>(W[8 * m + 2 * i], W[8 * m + 2 * i + 1]);
      store_block(Memory::kW + m / 4 * kTileBytes, warp, m % 4, packed);
    }
  }
  /// All of it for one chunk.
  __device__ void prepare(const Walk& x) const {
    const std::uint32_t tiles = place_of(at);
    float* const diagonal = reinterpret_cast<float*>(memory + (solve_block(warp, warp) - at));
    wait(barriers + Memory::kLoaded, turn & 1);
    if (x.count() < kChunk) {
      clear_rows<128>(memory + Memory::kKey, D / 64, x.count(), thread);
      clear_rows<128>(memory + Memory::kQuery, D / 64, x.count(), thread);
      barrier();
    }
    float XK[32], QK[32];
    auto along = [&](int rows, int k) { return rows_along_k(tiles, rows + k / 4 * kTileBytes + k % 4 * 32); };
    begin_products();
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      multiply_tiles<In>(QK, along(Memory::kQuery, k), along(Memory::kKey, k), k > 0);
      if (!Lambda) multiply_tiles<In>(XK, along(Memory::kKey, k), along(Memory::kKey, k), k > 0);
    }
    commit_products();
    if (a.l2norm) take_norms();
    wait_products<0>();
    pin(QK);
    if constexpr (Lambda) {
      mix_rows();
      begin_products();
#pragma unroll
      for (int k = 0; k < D / 16; ++k) multiply_tiles<In>(XK, along(kRows, k), along(Memory::kKey, k), k > 0);
      commit_products();
      wait_products<0>();
    }
    pin(XK);
    if (a.l2norm) {
      barrier();
      apply_norms(XK, QK, reinterpret_cast<Factors*>(memory + Memory::kFactors)[turn & 1]);
    }
    if (turn > 0) wait(barriers + Memory::kReusable, (turn - 1) & 1);
    score(XK, QK, x, diagonal);
    substitute(diagonal);
    invert(diagonal, x);
    transform();
    fence_shared();
    barrier();
    if (thread == 0) arrive(barriers + Memory::kDone);
  }

  /// Writes the lane's numbers of block (m, n) of a [C, C] matrix; zeros without them.
  __device__ void trace_block(void* to, const Walk& x, int m, int n, const float* numbers) const {
    if (!x.outputs) return;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int i = 16 * m + g + e / 2 % 2 * 8, j = 16 * n + e / 4 * 8 + 2 * t + e % 2;
      static_cast<float*>(to)[(x.place(a, x.chunk) * kChunk + i) * kChunk + j] = numbers ? numbers[e] : 0;
    }
  }
};

/// A warpgroup that prepares: of the chunks that are the block's, every third.
/// \param producer  the block's number among those that prepare
template <class In, int D, bool Lambda, bool Trace>
__device__ void prepare_chunks(const Arguments& a, const Shape& shape, unsigned char* block, unsigned cluster,
                               int producer, int team) {
  // T and P have no blocks right of the diagonal: zeros, and nobody writes there again.
  clear_rows<128>(block + TeamShared<D>::memory(team) + TeamShared<D>::kT, 2, 0, threadIdx.x % 128);
  team_barrier(1 + team);
  unsigned turn = 0;
  int steps = producer + shape.producers * team;
  for (Walk x(a, shape, cluster); x.step(steps); steps = shape.producers * kV5Teams)
    Team<In, D, Lambda, Trace>{a, block, team, turn++}.prepare(x);
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
    load_tile(to + Memory::kKey + h * kTileBytes, maps.k, 64 * h, x.key_head, x.token(), x.batch, loaded);
    load_tile(to + Memory::kQuery + h * kTileBytes, maps.q, 64 * h, x.key_head, x.token(), x.batch, loaded);
  }
}

/// What was prepared, to every chain, each half as soon as all have opened their stage for it.
/// \param from  the team's memory   \param number  of chunks sent before
template <int D>
__device__ inline void send(const Shape& shape, std::uint32_t block, std::uint32_t from, std::uint32_t barriers,
                            int stage, unsigned number) {
  using Memory = TeamShared<D>;
  using Chain = ChainShared<D>;
  const std::uint32_t sent = block + Chain::kSent + 8 * stage;
  const std::uint32_t to = block + Chain::stages(shape.warpgroups) + stage * Chain::stage(shape.warpgroups);
  auto send_all = [&](std::uint32_t there, int piece, int bytes) {
#pragma unroll 1
    for (unsigned chain = 0; chain < static_cast<unsigned>(shape.chains); ++chain)
      send_bytes(in_block(chain, there), from + piece, bytes, in_block(chain, sent));
  };
  wait(barriers + Memory::kOpened, number & 1);
  send_all(to + Chain::kW, Memory::kW, Memory::kKeys + kTileBytes);  // and T behind it
  wait(barriers + Memory::kRestOpened, number & 1);
  send_all(to + Chain::kP, Memory::kP, kTileBytes);
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
    to.high[i] = given(a.g, i, a.gate_is_log ? 0 : 1);  // the gate, until its sum takes its place
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
  constexpr double kLog2E = 1.4426950408889634;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int i = 2 * lane + e;
    const double bits = G[e] * kLog2E;
    to.high[i] = static_cast<float>(bits);
    to.low[i] = static_cast<float>(bits - static_cast<double>(to.high[i]));
    const float gamma = power_of_two(static_cast<float>(bits));
    to.read[i] = a.reads_key ? -gamma : 0;
    factors.output[i] = static_cast<float>(a.scale) * gamma;
    factors.write[i] = to.beta[i] * power_of_two(static_cast<float>((whole - G[e]) * kLog2E));
    if (i == kChunk - 1) factors.gamma[0] = gamma;
    if (Trace && a.trace.gamma && x.outputs && i < x.count())
      static_cast<float*>(a.trace.gamma)[x.place(a, x.chunk) * kChunk + i] = gamma;
  }
  __syncwarp();
#pragma unroll 1
  for (int i = lane; i < kChunk; i += 32) to.since[i] = to.decay(i, i / 16 * 16);
#pragma unroll 1
  for (int n = lane; n < 96; n += 32) {  // 16, 32 and 48 columns
    const int block = n < 16 ? 1 : n < 48 ? 2 : 3, j = n - (n < 16 ? 0 : n < 48 ? 16 : 48);
    to.columns[block - 1][j] = to.decay(16 * block, j) * to.beta[j];
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
  unsigned number = 0;  // of chunks before this one
  Ring ring;            // where the last of them belongs
  ring.skip(producer + shape.producers * team, shape.depth);
  int steps = producer + shape.producers * team;
  for (Walk x(a, shape, cluster);; steps = shape.producers * kV5Teams) {
    const bool more = x.step(steps);
    if (more) {
      take_numbers<Trace>(a, x, reinterpret_cast<Numbers*>(memory + Memory::kNumbers)[number & 1],
                          reinterpret_cast<Factors*>(memory + Memory::kFactors)[number & 1]);
      if (number > 0) wait(barriers + Memory::kEmptied, (number - 1) & 1);
      fence_shared();  // the copy engine sends the factors, and writes where -A D_a has been
      fetch<D>(a, maps, x, at, barriers + Memory::kLoaded);
      arrive(barriers + Memory::kLoaded);
    }
    if (number > 0) {  // the chunk before, now that the next is on its way
      wait(barriers + Memory::kDone, (number - 1) & 1);
      send<D>(shape, block_at, at, barriers, ring.stage, number - 1);
      wait(barriers + Memory::kLanded, (number - 1) & 1);
      if (lane == 0) arrive(barriers + Memory::kReusable);
      ring.skip(shape.producers * kV5Teams, shape.depth);
    }
    if (!more) break;
    ++number;
  }
}

}  // namespace delta::gpu
