// SPDX-License-Identifier: Apache-2.0
// The first stage of v5: what a chunk needs and the state does not enter, for all chunks at once.
#pragma once
#include "gpu/kernels/chain.cuh"
#include "gpu/kernels/hopper.cuh"

namespace delta::gpu {

/// What the first stage hands to the chain for one chunk of one head, in memory as in shared memory; C = 64.
/// N = (I + L_g)^{-1} - I is a sum of two 16-bit matrices, itself rounded and the rest. Its upper right quarter is zero
/// and not there, so three tiles of 32 rows of 128 bytes hold both: rows 0 .. 31 [32 columns of N, 32 of the rest],
/// rows 32 .. 63 of N, rows 32 .. 63 of the rest. Then P = scale (H . Q K^T), and the factors of the tokens.
struct Record {
  static constexpr int kTop = 0, kBottom = 4096, kBottomRest = 8192, kP = 12288, kTokens = 20480;
  static constexpr int kBytes = kTokens + 4 * (kFactors * kChunk + 4);
  static constexpr int kSize = 22528;  ///< rounded up to whole KB, for tiles start at those
};
static_assert(Record::kBytes <= Record::kSize);

/// Below this a decay is exactly 0 in fp32 wherever it is part of a product, as in v4.
constexpr double kResetLog = -1000;

/// Where the copy engine finds q, k and v.
struct Maps {
  CUtensorMap q, k, v;
};

/// The chunks that one team of 128 threads prepares, every step-th from `first` on: slot by slot, or the first chunks
/// of all heads first, as the chains ask for them.
struct Walk {
  bool by_time;
  unsigned first, step, count;
};

/// A chunk of a head: its first token in the tensors, how many it has (0: there is no such chunk), and its place in the
/// workspace, slot * HV + head.
struct ChunkOf {
  int batch, token, head, count;
  unsigned place;
};

__device__ inline ChunkOf chunk_of(const Arguments& a, const Walk& walk, unsigned item) {
  const unsigned HV = static_cast<unsigned>(a.HV), lanes = static_cast<unsigned>(a.N) * HV;
  unsigned n, c, head;
  if (walk.by_time) {
    n = item % lanes / HV, head = item % HV, c = item / lanes;
  } else {
    const unsigned slot = item / HV, slots = static_cast<unsigned>(a.T / kChunk) + 1;  // of one of equal sequences
    const SlotOwner owner = a.offsets ? owner_of(a, slot) : SlotOwner{slot / slots, slot % slots};
    n = static_cast<unsigned>(owner.sequence), c = static_cast<unsigned>(owner.chunk), head = item % HV;
  }
  if (n >= a.N) return {};
  const Sequence s = a.sequence(n);
  const std::int64_t left = s.length - std::int64_t{kChunk} * c;
  return {static_cast<int>(s.batch), static_cast<int>(s.begin) + kChunk * static_cast<int>(c), static_cast<int>(head),
          static_cast<int>(left < 0        ? 0
                           : left < kChunk ? left
                                           : kChunk),
          (static_cast<unsigned>(first_slot(a, n, kChunk)) + c) * HV + head};
}
/// Fetches one number of [B, T, HV], of token i of the chunk, without waiting; 0 beyond its end.
__device__ inline void copy_number(float* to, const Rows& x, const ChunkOf& at, int i) {
  if (!x.data) return;
  const bool there = i < at.count;
  const float* const from =
      static_cast<const float*>(x.data) + at.batch * x.stride_b + at.token * x.stride_t + at.head * x.stride_h;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared_address(to)),
               "l"(from + (there ? i * x.stride_t : 0)), "r"(there ? 4 : 0)
               : "memory");
}

/// Zeros in the rows count .. 63 of tiles of 128-byte rows: what lies beyond a sequence's end, NaN included, is not
/// read.
template <int Threads> __device__ inline void clear_rows(unsigned char* tiles, int number, int count, int thread) {
  for (int e = thread; e < number * (kChunk - count) * 8; e += Threads) {
    const int tile = e / ((kChunk - count) * 8), rest = e % ((kChunk - count) * 8);
    *reinterpret_cast<uint4*>(tiles + tile * 8192 + (count + rest / 8) * 128 + rest % 8 * 16) = make_uint4(0, 0, 0, 0);
  }
  fence_shared();
}

/// Shared memory of a team: K and Q in tiles; what its warps hand each other, and in its place the record; then the
/// norms of the rows, the barrier, and numbers.
template <int D> struct PrepareMemory {
  static constexpr int kTiles = D / 64, kKey = 0, kQuery = kTiles * 8192, kRecord = 2 * kTiles * 8192;
  static constexpr int kL = kRecord, kInverse = kL + 6 * 1024, kScratch = kInverse + 4 * 1024;
  static constexpr int kPitch = 20;  ///< numbers in a row of a diagonal block
  static constexpr int kNorms = kRecord + Record::kBytes,
                       kBarrier = kNorms + 2 * kChunk * 4;  // what the record leaves free
  static constexpr int kNumbers = kRecord + Record::kSize,
                       kGiven = 2 * kChunk;  // two per token, then twice three as given
  static constexpr int kBytes = kNumbers + 8 * kChunk * 4;
};
static_assert(PrepareMemory<128>::kBarrier + 8 <= PrepareMemory<128>::kNumbers);

/// Two 16-bit numbers whose sum is x up to 2^-17 |x|, packed in pairs: an operand and its rest.
struct Pair {
  std::uint32_t big[4], small[4];
};
template <class In> __device__ inline void split(Pair& p, const float (&left)[4], const float (&right)[4]) {
  as_operand<In>(p.big, left, right);
#pragma unroll
  for (int i = 0; i < 4; ++i) p.small[i] = p.big[i];
  rest_of_operand<In>(p.small, left, right);
}
__device__ inline void sum_of(float (&block)[2][4], const Pair& p) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 big = unpack<__nv_bfloat16>(p.big[i]), small = unpack<__nv_bfloat16>(p.small[i]);
    block[i / 2][i % 2 * 2] = big.x + small.x, block[i / 2][i % 2 * 2 + 1] = big.y + small.y;
  }
}
/// D += A B for 16 x 16 blocks that are pairs; b[2 h], b[2 h + 1] serve the columns 8 h .. 8 h + 7.
__device__ inline void multiply_pairs(float (&d)[2][4], const Pair& a, const unsigned char* b) {
  std::uint32_t big[4], small[4];
  get_operand(big, b), get_operand(small, b + 512);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    mma<__nv_bfloat16>(d[h], a.small, big[2 * h], big[2 * h + 1]);
    mma<__nv_bfloat16>(d[h], a.big, small[2 * h], small[2 * h + 1]);
    mma<__nv_bfloat16>(d[h], a.big, big[2 * h], big[2 * h + 1]);
  }
}

/// \f[ L_g = \mathrm{sl}(B (H \odot X K^\top)), \quad N = (I + L_g)^{-1} - I, \quad P = \mathrm{scale}\,(H \odot Q
/// K^\top) \f] X K^T = K K^T + diag(lambda) Q K^T, so that q_delta costs one multiply-add.
///
/// A warp has 16 rows of the products in registers. It inverts the diagonal block of its rows by forward substitution
/// in fp32, and then, of the transposed inverse M = A^T, computes the blocks of its own row, which stay in registers:
/// \f[ M_{ji} = -\Big(\sum_{k=j}^{i-1} M_{jk} L_{ik}^\top\Big) M_{ii}. \f]
/// The blocks L_ik and M_ii travel through shared memory in the very registers in which the products want them. All
/// these are pairs of bf16 (16 bits), and no power of L appears: for repeated keys those reach 4.65e17.
/// \param memory  of the team   \param barrier_id  the team's own
/// \formula{F37} \formula{F38} \formula{F83}
template <class In, int D, bool Trace>
__device__ void prepare(const Arguments& a, const Maps& maps, unsigned char* memory, int barrier_id, const Walk& walk,
                        unsigned char* records, unsigned* ready) {
  using Memory = PrepareMemory<D>;
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const std::uint32_t at = shared_address(memory), tiles = place_of(at), landed = at + Memory::kBarrier;
  float* const high = reinterpret_cast<float*>(memory + Memory::kNumbers);
  float *const low = high + kChunk, *const q_norm = reinterpret_cast<float*>(memory + Memory::kNorms),
               *const k_norm = q_norm + kChunk;
  float* const scratch = reinterpret_cast<float*>(memory + Memory::kScratch) + warp * 16 * Memory::kPitch;

  if (thread == 0) init_barrier(landed, 1), fence_shared();
  team_barrier(barrier_id);

  auto fetch = [&](const ChunkOf& x) {  // by thread 0
    arrive_and_expect(landed, 2 * Memory::kTiles * 8192);
    for (int h = 0; h < Memory::kTiles; ++h) {
      load_tile(at + Memory::kKey + h * 8192, maps.k, 64 * h, a.key_head(x.head), x.token, x.batch, landed);
      load_tile(at + Memory::kQuery + h * 8192, maps.q, 64 * h, a.key_head(x.head), x.token, x.batch, landed);
    }
  };
  auto fetch_numbers = [&](const ChunkOf& x, unsigned parity) {  // g, beta and lambda of 64 tokens
    float* const given = high + Memory::kGiven + static_cast<int>(parity) * 3 * kChunk;
    const int i = thread % kChunk;
    if (thread < kChunk)
      copy_number(given + i, a.g, x, i), copy_number(given + 2 * kChunk + i, a.lambda, x, i);
    else
      copy_number(given + kChunk + i, a.beta, x, i);
    commit_copies();
  };
  auto next_after = [&](unsigned item, ChunkOf& x) {
    for (; item < walk.count; item += walk.step)
      if (x = chunk_of(a, walk, item); x.count > 0) return item;
    x.count = 0;
    return item;
  };

  ChunkOf now, next;
  constexpr unsigned kNone = 0xffffffffu;
  unsigned item = next_after(walk.first, now), last = kNone;
  if (now.count > 0) {
    if (thread == 0) fetch(now);
    fetch_numbers(now, 0);
  }
  auto release = [&] {  // by thread 0: the record before this one has left; where a chain waits for it, it has arrived
    if (!ready || last == kNone) return wait_stores_read();
    wait_stores();
    fence_global();
    asm volatile("st.release.gpu.global.u32 [%0], 1;\n" ::"l"(ready + last) : "memory");
  };

  for (unsigned parity = 0; now.count > 0; parity ^= 1) {
    const float* const given = high + Memory::kGiven + static_cast<int>(parity) * 3 * kChunk;
    auto beta_of = [&](int i) { return i >= now.count ? 0 : a.beta.data ? given[kChunk + i] : 1; };
    auto lambda_of = [&](int i) { return a.lambda.data ? given[2 * kChunk + i] : 0; };
    wait_copies<0>();
    wait(landed, parity);
    if (now.count < kChunk) clear_rows<128>(memory + Memory::kKey, 2 * Memory::kTiles, now.count, thread);
    team_barrier(barrier_id);

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
    if (warp == 0) {  // G_i: a lane sums two tokens, the lanes scan
      double log_decay[2] = {0, 0};
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (!a.g.data || 2 * lane + e >= now.count) continue;
        const double x = given[2 * lane + e];
        log_decay[e] = a.gate_is_log ? x : log(x);
        if (log_decay[e] < kResetLog) log_decay[e] = kResetLog;  // a NaN stays one
      }
      double sum = log_decay[0] + log_decay[1];
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const double before = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += before;
      }
      const double before = __shfl_up_sync(0xffffffffu, sum, 1);
      double G = lane == 0 ? 0 : before;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        G += log_decay[e];
        const double bits = G * 1.4426950408889634;  // log2
        high[2 * lane + e] = static_cast<float>(bits);
        low[2 * lane + e] = static_cast<float>(bits - static_cast<double>(static_cast<float>(bits)));
      }
    }
    if (a.l2norm) {
      const int i = thread % kChunk;
      const unsigned char* const tile = memory + (thread < kChunk ? Memory::kKey : Memory::kQuery) + i * 128;
      float sum = 0;
      for (int piece = 0; piece < 8 * Memory::kTiles; ++piece) {
        const In* const x = reinterpret_cast<const In*>(tile + piece / 8 * 8192 + ((piece % 8 ^ (i & 7)) << 4));
        for (int e = 0; e < 8; ++e) sum += number<float>(x[e]) * number<float>(x[e]);
      }
      (thread < kChunk ? k_norm : q_norm)[i] = i < now.count ? 1 / sqrtf(sum + static_cast<float>(a.eps)) : 0;
    }
    wait_products<0>();
    pin(KK), pin(QK);
    if (thread == 0) release();
    team_barrier(barrier_id);  // K and Q are used up, the last record has left
    const unsigned next_item = next_after(item + walk.step, next);
    if (next.count > 0) {
      if (thread == 0) fetch(next);
      fetch_numbers(next, parity ^ 1);
    }

    if (a.l2norm)  // the norms are factors: the rows themselves are never rounded again
#pragma unroll
      for (int e = 0; e < 32; ++e) {
        const int i = 16 * warp + g + e / 2 % 2 * 8, j = e / 4 * 8 + 2 * t + e % 2;
        KK[e] *= k_norm[i] * k_norm[j], QK[e] *= q_norm[i] * k_norm[j];
      }
    // P, and L_g in the place of K K^T.
    std::uint32_t P[16];
    float high_i[2], low_i[2], beta_i[2], lambda_i[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int i = 16 * warp + g + 8 * h;
      high_i[h] = high[i], low_i[h] = low[i], beta_i[h] = beta_of(i), lambda_i[h] = lambda_of(i);
    }
    const float c = a.reads_key ? 1 : 0, scale = static_cast<float>(a.scale);
#pragma unroll
    for (int tile = 0; tile < 8; ++tile) {
      P[2 * tile] = P[2 * tile + 1] = 0;
      if (tile > 2 * warp + 1) continue;
      const float2 high_j = *reinterpret_cast<const float2*>(high + 8 * tile + 2 * t);
      const float2 low_j = *reinterpret_cast<const float2*>(low + 8 * tile + 2 * t);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int i = 16 * warp + g + 8 * h, j = 8 * tile + 2 * t;
        float& k0 = KK[4 * tile + 2 * h];
        float& k1 = KK[4 * tile + 2 * h + 1];
        const float q0 = QK[4 * tile + 2 * h], q1 = QK[4 * tile + 2 * h + 1];
        const float H0 = power_of_two((high_i[h] - high_j.x) + (low_i[h] - low_j.x));
        const float H1 = power_of_two((high_i[h] - high_j.y) + (low_i[h] - low_j.y));
        P[2 * tile + h] = pack<In>(j <= i ? scale * H0 * q0 : 0, j + 1 <= i ? scale * H1 * q1 : 0);
        k0 = j < i ? beta_i[h] * H0 * (c * k0 + lambda_i[h] * q0) : 0;
        k1 = j + 1 < i ? beta_i[h] * H1 * (c * k1 + lambda_i[h] * q1) : 0;
      }
    }
    if (Trace && a.trace.L_g)
#pragma unroll
      for (int e = 0; e < 32; ++e) {
        const int i = 16 * warp + g + e / 2 % 2 * 8, j = e / 4 * 8 + 2 * t + e % 2;
        static_cast<float*>(a.trace.L_g)[(std::int64_t{now.place} * kChunk + i) * kChunk + j] = j < i ? KK[e] : 0;
      }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* const block = KK + 8 * k;  // columns 16 k .. 16 k + 15 of the warp's rows
      if (k < warp) {
        Pair b;
        const float upper[4] = {block[0], block[1], block[4], block[5]},
                    lower[4] = {block[2], block[3], block[6], block[7]};
        split<__nv_bfloat16>(b, upper, lower);
        unsigned char* const to = memory + Memory::kL + (warp * (warp - 1) / 2 + k) * 1024;
        put_operand(to, b.big), put_operand(to + 512, b.small);
      } else if (k == warp) {
#pragma unroll
        for (int e = 0; e < 8; e += 2)
          *reinterpret_cast<float2*>(scratch + (g + e / 2 % 2 * 8) * Memory::kPitch + e / 4 * 8 + 2 * t) =
              make_float2(block[e], block[e + 1]);
      }
    }
    __syncwarp();
    float column[16];  // lane c < 16 solves (I + L_ww) a = e_c
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float sum = 0;
#pragma unroll
      for (int j = 0; j < i; j += 4) {  // all lanes read the same row
        const float4 d = *reinterpret_cast<const float4*>(scratch + i * Memory::kPitch + j);
        sum += d.x * column[j];
        if (j + 1 < i) sum += d.y * column[j + 1];
        if (j + 2 < i) sum += d.z * column[j + 2];
        if (j + 3 < i) sum += d.w * column[j + 3];
      }
      column[i] = (i == lane ? 1.f : 0.f) - sum;
    }
    __syncwarp();
    if (lane < 16)
#pragma unroll
      for (int i = 0; i < 16; ++i) scratch[i * Memory::kPitch + lane] = column[i];
    __syncwarp();
    auto A = [&](int i, int j) { return scratch[i * Memory::kPitch + j]; };
    Pair M[4];  // the warp's row of blocks of A^T, those from the diagonal on
    {
      const float upper[4] = {A(g, 2 * t), A(g, 2 * t + 1), A(g, 2 * t + 8), A(g, 2 * t + 9)};
      const float lower[4] = {A(g + 8, 2 * t), A(g + 8, 2 * t + 1), A(g + 8, 2 * t + 8), A(g + 8, 2 * t + 9)};
      Pair b;
      split<__nv_bfloat16>(b, upper, lower);
      put_operand(memory + Memory::kInverse + warp * 1024, b.big);
      put_operand(memory + Memory::kInverse + warp * 1024 + 512, b.small);
      float own[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 4; ++e) own[h][e] = A(8 * h + 2 * t + e % 2, g + e / 2 * 8);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (k == warp) split<__nv_bfloat16>(M[k], own[0], own[1]);
    }
    team_barrier(barrier_id);
#pragma unroll
    for (int i = 1; i < 4; ++i) {
      if (i <= warp) continue;
      float sum[2][4] = {}, product[2][4] = {};
#pragma unroll
      for (int k = 0; k < i; ++k)
        if (k >= warp) multiply_pairs(sum, M[k], memory + Memory::kL + (i * (i - 1) / 2 + k) * 1024);
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[h][e] = -sum[h][e];
      Pair s;
      split<__nv_bfloat16>(s, sum[0], sum[1]);
      multiply_pairs(product, s, memory + Memory::kInverse + i * 1024);
      split<__nv_bfloat16>(M[i], product[0], product[1]);
    }
    team_barrier(barrier_id);  // what the warps handed each other is used up: the record takes its place

    const std::uint32_t record = at + Memory::kRecord;
    const int matrix = lane / 8, r = lane % 8;
#pragma unroll
    for (int m = 0; m < 4; ++m)
      store_matrices(record + Record::kP + swizzled<128>(16 * warp + matrix % 2 * 8 + r, 2 * m + matrix / 2),
                     P + 4 * m);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool zero = i < warp;  // above the diagonal only what the tiles hold: blocks (0, 1) and (2, 3)
      if (zero && !(warp == i + 1 && i % 2 == 0)) continue;
      Pair n{};
      if (!zero) n = M[i];
      if (i == warp)  // of the diagonal block what is strictly below the diagonal
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int below = e / 2 * 8 + 2 * t - (g + e % 2 * 8);  // row - column of the pair's first number
          const std::uint32_t keep = (below > 0 ? 0xffffu : 0) | (below + 1 > 0 ? 0xffff0000u : 0);
          n.big[e] &= keep, n.small[e] &= keep;
        }
      if constexpr (std::is_same_v<In, __half>) {
        float block[2][4];
        sum_of(block, n);
        split<In>(n, block[0], block[1]);
      }
      const int row = 16 * (i % 2) + matrix / 2 * 8 + r, piece = 2 * warp + matrix % 2;
      if (i < 2) {
        store_matrices_transposed(record + Record::kTop + swizzled<128>(row, piece), n.big);
        store_matrices_transposed(record + Record::kTop + swizzled<128>(row, piece + 4), n.small);
      } else {
        store_matrices_transposed(record + Record::kBottom + swizzled<128>(row, piece), n.big);
        store_matrices_transposed(record + Record::kBottomRest + swizzled<128>(row, piece), n.small);
      }
    }
    if (thread < kChunk) {
      const int i = thread, last = kChunk - 1;
      float* const factor = reinterpret_cast<float*>(memory + Memory::kRecord + Record::kTokens);
      const float gamma = power_of_two(high[i] + low[i]), scale = static_cast<float>(a.scale), beta = beta_of(i);
      const float key = a.l2norm ? k_norm[i] : 1, query = a.l2norm ? q_norm[i] : 1;
      factor[kBeta * kChunk + i] = beta;
      factor[kReadKey * kChunk + i] = a.reads_key ? beta * gamma * key : 0;
      factor[kReadQuery * kChunk + i] = beta * gamma * lambda_of(i) * query;
      factor[kOutput * kChunk + i] = scale * gamma * query;
      factor[kWrite * kChunk + i] = power_of_two((high[last] - high[i]) + (low[last] - low[i])) * key;
      if (i == last) factor[kFactors * kChunk] = gamma;
      if (Trace && a.trace.gamma && i < now.count)
        static_cast<float*>(a.trace.gamma)[std::int64_t{now.place} * kChunk + i] = gamma;
    }
    if (Trace && a.trace.inverse)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float block[2][4];
        if (i >= warp) sum_of(block, M[i]);
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int row = 16 * i + 8 * h + 2 * t + e % 2, column_ = 16 * warp + g + e / 2 * 8;
            static_cast<float*>(a.trace.inverse)[(std::int64_t{now.place} * kChunk + row) * kChunk + column_] =
                i < warp ? 0 : block[h][e];
          }
      }
    fence_shared();
    team_barrier(barrier_id);
    if (thread == 0) store_bytes(records + std::int64_t{now.place} * Record::kSize, record, Record::kBytes);
    last = now.place;
    now = next, item = next_item;
  }
  if (thread == 0) release();
}

}  // namespace delta::gpu
