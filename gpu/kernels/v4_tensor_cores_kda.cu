// SPDX-License-Identifier: Apache-2.0
// v4 for kda: a decay per key channel.
//
// Change      the ratio of decays now sits inside the sum over channels, sum_d x_id k_jd exp(G_id - G_jd). Between two
//             blocks of 16 tokens it splits at the later block's start into two factors, neither above 1, which go into
//             the operands; inside a block it is summed directly. The serial stage is the same, with decayed copies of
//             the keys.
// Prediction  the direct blocks cost 544 pairs x d_k exponentials a chunk, about 5500 issue slots a warp: the first
//             stage takes three times as long as with a scalar decay, the second reads 48 KB more a chunk and head.
// Gained      (1, 8192, 64) on an H200: 3.7 ms with a warp for a block row, 1.8 with 256 threads that share the pairs.
#include "gpu/kernels/chain.cuh"
#include "gpu/kernels/inverse.cuh"
#include "gpu/kernels/launch.hpp"

namespace delta::gpu {
namespace {

constexpr int kThreads = 256, kBlock = 16, kBlocks = kChunk / kBlock;
constexpr float kLog2E = 1.4426950408889634f;
/// exp(-200) is 0 in fp32: a stronger decay changes nothing but the digits of its neighbours.
constexpr float kResetLog = -200;

template <int D> struct Shared {
  static constexpr int kRowBytes = 2 * D, kTileBytes = kChunk * kRowBytes, kGates = D + 4;
  static constexpr int kSquares = kChunk * kSquare * 4;  // A, in the place of Q and K
  static constexpr int kL = 2 * kTileBytes > kSquares ? 2 * kTileBytes : kSquares;
  static constexpr int kG = kL + kSquares, kSums = kG + kChunk * kGates * 4, kP = kSums + 3 * kBlocks * D * 4;
  static constexpr int kNumbers = kP + kChunk * kChunk * 2, kBytes = kNumbers + 3 * kChunk * 4;
};

/// \f[ L_{ij} = \beta_i \sum_d k_{id} k_{jd} e^{G_{id} - G_{jd}}, \quad P_{ij} = \mathrm{scale} \sum_d q_{id} k_{jd}
/// e^{G_{id} - G_{jd}} \f] and N = (I + L)^{-1} - I, with the copies e^{G_i} k_i, e^{G_i} q_i and e^{G_C - G_j} k_j for
/// the serial stage. No exponent is ever positive. \formula{C-kda}
template <class In, int D> __global__ void __launch_bounds__(kThreads) prepare_kda(const Arguments a) {
  using M = Shared<D>;
  constexpr int kRowBytes = M::kRowBytes, kPieces = kRowBytes / 16, kGates = M::kGates;
  extern __shared__ __align__(128) unsigned char memory[];
  float* const A = reinterpret_cast<float*>(memory);
  float* const L = reinterpret_cast<float*>(memory + M::kL);
  float* const G = reinterpret_cast<float*>(memory + M::kG);         // [C][d_k] log2 decay since the block's start
  float* const total = reinterpret_cast<float*>(memory + M::kSums);  // [4][d_k] of each block
  float* const before = total + kBlocks * D;                         // [4][d_k] of the blocks before it
  float* const after = before + kBlocks * D;                         // [4][d_k] of the blocks after it
  unsigned char* const P = memory + M::kP;
  float* const beta = reinterpret_cast<float*>(memory + M::kNumbers);
  float *const q_norm = beta + kChunk, *const k_norm = q_norm + kChunk;
  const unsigned char *const K = memory, *const Q = memory + M::kTileBytes;
  const int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;

  const std::int64_t chunk = blockIdx.x;  // slot * HV + head
  const int head = static_cast<int>(chunk % a.HV);
  const SlotOwner owner = owner_of(a, chunk / a.HV);
  if (owner.chunk < 0) return;
  const Sequence s = a.sequence(owner.sequence);
  const std::int64_t begin = owner.chunk * kChunk;
  const int c = static_cast<int>(min(static_cast<std::int64_t>(kChunk), s.length - begin));

  const In* const k = row<In>(a.k, s, begin, a.key_head(head));
  const In* const q = row<In>(a.q, s, begin, a.key_head(head));
  for (int e = thread; e < kChunk * kPieces; e += kThreads) {
    const int r = e / kPieces, piece = e % kPieces, to = swizzled<kRowBytes>(r, piece);
    copy_async(shared_address(K) + to, r < c ? k + r * a.k.stride_t + piece * 8 : k, r < c);
    copy_async(shared_address(Q) + to, r < c ? q + r * a.q.stride_t + piece * 8 : q, r < c);
  }
  commit_copies();

  for (int e = thread; e < kBlocks * D; e += kThreads) {
    const int block = e / D, d = e % D;
    float sum = 0;
    for (int i = kBlock * block; i < kBlock * (block + 1); ++i) {
      if (i < c && a.g.data) {
        const float x = row<float>(a.g, s, begin + i, head)[d];
        const float log_decay = a.gate_is_log ? x : logf(x);
        sum += (log_decay < kResetLog ? kResetLog : log_decay) * kLog2E;
      }
      G[i * kGates + d] = sum;
    }
    total[e] = sum;
  }
  if (thread < kChunk) beta[thread] = thread < c ? scalar<float>(a.beta, s, begin + thread, head, 1) : 0;
  wait_copies<0>();
  __syncthreads();
  if (thread < 2 * kChunk) {
    const int i = thread % kChunk;
    float norm = 1;
    if (a.l2norm) {
      float sum = 0;
      for (int piece = 0; piece < kPieces; ++piece) {
        const In* const x =
            reinterpret_cast<const In*>(memory + thread / kChunk * M::kTileBytes + swizzled<kRowBytes>(i, piece));
        for (int e = 0; e < 8; ++e) sum += number<float>(x[e]) * number<float>(x[e]);
      }
      norm = i < c ? 1 / sqrtf(sum + static_cast<float>(a.eps)) : 0;
    }
    (thread < kChunk ? k_norm : q_norm)[i] = norm;
  }
  for (int d = thread; d < D; d += kThreads) {
    float sum = 0;
    for (int block = 0; block < kBlocks; ++block) before[block * D + d] = sum, sum += total[block * D + d];
    sum = 0;
    for (int block = kBlocks - 1; block >= 0; --block) after[block * D + d] = sum, sum += total[block * D + d];
  }
  __syncthreads();

  const ChunkWorkspace<D, true> workspace(a.workspace);
  In* const keys = static_cast<In*>(workspace.keys(chunk));
  for (int e = thread; e < kChunk * kPieces; e += kThreads) {
    const int i = e / kPieces, piece = e % kPieces, block = i / kBlock;
    const In* const k_i = reinterpret_cast<const In*>(K + swizzled<kRowBytes>(i, piece));
    const In* const q_i = reinterpret_cast<const In*>(Q + swizzled<kRowBytes>(i, piece));
    std::uint32_t read[4], output[4], write[4];
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      float in[2], out[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int d = 8 * piece + 2 * m + h;
        const float since = G[i * kGates + d];
        in[h] = power_of_two(before[block * D + d] + since);
        out[h] = power_of_two((total[block * D + d] - since) + after[block * D + d]) * k_norm[i];
      }
      const float k0 = number<float>(k_i[2 * m]), k1 = number<float>(k_i[2 * m + 1]);
      const float q0 = number<float>(q_i[2 * m]), q1 = number<float>(q_i[2 * m + 1]);
      read[m] = pack<In>(in[0] * k_norm[i] * k0, in[1] * k_norm[i] * k1);
      output[m] = pack<In>(in[0] * q_norm[i] * q0, in[1] * q_norm[i] * q1);
      write[m] = pack<In>(out[0] * k0, out[1] * k1);
    }
    *reinterpret_cast<uint4*>(keys + e * 8) = make_uint4(read[0], read[1], read[2], read[3]);
    *reinterpret_cast<uint4*>(keys + kChunk * D + e * 8) = make_uint4(output[0], output[1], output[2], output[3]);
    *reinterpret_cast<uint4*>(keys + 2 * kChunk * D + e * 8) = make_uint4(write[0], write[1], write[2], write[3]);
  }

  const float scale = static_cast<float>(a.scale);
  auto set = [&](int i, int j, float kk, float qk) {  // one entry of L and P
    L[i * kSquare + j] = j < i ? beta[i] * kk * (k_norm[i] * k_norm[j]) : 0;
    *reinterpret_cast<In*>(P + swizzled<128>(i, j / 8) + j % 8 * 2) =
        number<In>(j <= i ? scale * qk * (q_norm[i] * k_norm[j]) : 0.f);
  };
  // Two neighbouring channels of a row, each times 2 to its exponent (at most 0).
  auto decayed = [&](const unsigned char* tile, int i, int d, float exponent0, float exponent1) {
    const float2 x =
        unpack<In>(*reinterpret_cast<const std::uint32_t*>(tile + swizzled<kRowBytes>(i, d / 8) + d % 8 * 2));
    return pack<In>(x.x * power_of_two(exponent0), x.y * power_of_two(exponent1));
  };

  // The six blocks below the diagonal, one a warp, by mma: split at the start of the later block.
  if (warp < kBlocks * (kBlocks - 1) / 2) {
    const int late = warp < 1 ? 1 : warp < 3 ? 2 : 3, block = warp - late * (late - 1) / 2;
    float KK[2][4] = {}, QK[2][4] = {};
    for (int d0 = 0; d0 < D; d0 += 16) {
      std::uint32_t key[4], query[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int i = kBlock * late + g + r % 2 * 8, d = d0 + 2 * t + r / 2 * 8;
        const float e0 = G[i * kGates + d], e1 = G[i * kGates + d + 1];
        key[r] = decayed(K, i, d, e0, e1), query[r] = decayed(Q, i, d, e0, e1);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int j = kBlock * block + 8 * half + g;
        std::uint32_t b[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int d = d0 + 2 * t + r * 8;
          float e[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            e[h] = total[block * D + d + h] - G[j * kGates + d + h];
            for (int between = block + 1; between < late; ++between) e[h] += total[between * D + d + h];
          }
          b[r] = decayed(K, j, d, e[0], e[1]);
        }
        mma<In>(KK[half], key, b[0], b[1]);
        mma<In>(QK[half], query, b[0], b[1]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        set(kBlock * late + g + e / 2 * 8, kBlock * block + 8 * half + 2 * t + e % 2, KK[half][e], QK[half][e]);
  }
  // The diagonal blocks: every pair directly, in fp32. Row r and row 15 - r have 17 pairs together, so 8 x 17 places
  // hold a triangle.
  constexpr int kPairs = kBlock * (kBlock + 1) / 2;
  for (int e = thread; e < kBlocks * kPairs; e += kThreads) {
    const int block = e / kPairs, u = e % kPairs / (kBlock + 1), w = e % kPairs % (kBlock + 1);
    const int i = kBlock * block + (w <= u ? u : kBlock - 1 - u), j = kBlock * block + (w <= u ? w : w - u - 1);
    float kk = 0, qk = 0;
    for (int piece = 0; piece < kPieces; ++piece) {
      const uint4 ki = *reinterpret_cast<const uint4*>(K + swizzled<kRowBytes>(i, piece));
      const uint4 kj = *reinterpret_cast<const uint4*>(K + swizzled<kRowBytes>(j, piece));
      const uint4 qi = *reinterpret_cast<const uint4*>(Q + swizzled<kRowBytes>(i, piece));
      const float *const Gi = G + i * kGates + 8 * piece, *const Gj = G + j * kGates + 8 * piece;
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const float2 x = unpack<In>((&ki.x)[m]), y = unpack<In>((&kj.x)[m]), z = unpack<In>((&qi.x)[m]);
        const float y0 = y.x * power_of_two(Gi[2 * m] - Gj[2 * m]),
                    y1 = y.y * power_of_two(Gi[2 * m + 1] - Gj[2 * m + 1]);
        kk += x.x * y0 + x.y * y1, qk += z.x * y0 + z.y * y1;
      }
    }
    set(i, j, kk, qk);
  }
  for (int e = thread; e < kChunk * kChunk; e += kThreads)
    if (e % kChunk > e / kChunk) set(e / kChunk, e % kChunk, 0, 0);
  __syncthreads();  // K and Q are used up: A takes their place
  invert_unit_lower(A, L);

  store_matrices_of_chunk<In>(workspace, chunk, A, P, kThreads);
  float* const factor = workspace.tokens(chunk);
  if (thread < kChunk) {
    factor[kBeta * kChunk + thread] = factor[kReadKey * kChunk + thread] = beta[thread];
    factor[kReadQuery * kChunk + thread] = 0;
    factor[kOutput * kChunk + thread] = scale;
    factor[kWrite * kChunk + thread] = 1;
  }
  for (int d = thread; d < D; d += kThreads)
    factor[kFactors * kChunk + d] = power_of_two(before[(kBlocks - 1) * D + d] + total[(kBlocks - 1) * D + d]);

  for (int e = thread; e < kChunk * kChunk; e += kThreads) {
    const int i = e / kChunk, j = e % kChunk;
    if (a.trace.L_g) static_cast<float*>(a.trace.L_g)[chunk * kChunk * kChunk + e] = j < i ? L[i * kSquare + j] : 0;
    if (a.trace.inverse)
      static_cast<float*>(a.trace.inverse)[chunk * kChunk * kChunk + e] = j <= i ? A[i * kSquare + j] : 0;
  }
  if (a.trace.U)
    for (int e = thread; e < c * a.d_v; e += kThreads) {
      float sum = 0;
      for (int j = 0; j <= e / a.d_v; ++j)
        sum += A[e / a.d_v * kSquare + j] * beta[j] * number<float>(row<In>(a.v, s, begin + j, head)[e % a.d_v]);
      static_cast<float*>(a.trace.U)[chunk * kChunk * a.d_v + e] = sum;
    }
  if (a.trace.W) {
    for (int e = thread; e < c * D; e += kThreads) {
      float sum = 0;
      for (int j = 0; j <= e / D; ++j) {
        const float decay_j = power_of_two(before[j / kBlock * D + e % D] + G[j * kGates + e % D]);
        sum += A[e / D * kSquare + j] * beta[j] * decay_j * k_norm[j] * number<float>(k[j * a.k.stride_t + e % D]);
      }
      static_cast<float*>(a.trace.W)[chunk * kChunk * D + e] = sum;
    }
  }
}

template <class In, int D>
cudaError_t launch(const Arguments& a, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  constexpr int shared = Shared<D>::kBytes;
  static_assert(shared <= v4_shared(D, 16, true, 2));  // where the serial stage fits, so does this one
  const cudaError_t error = allow_all_shared_memory(prepare_kda<In, D>);
  if (error != cudaSuccess) return error;
  prepare_kda<In, D><<<static_cast<unsigned>(plan.slots * a.HV), kThreads, shared, stream>>>(a);
  if (const cudaError_t launched = cudaGetLastError(); launched != cudaSuccess) return launched;
  return launch_chain<In, D, true>(a, plan, stream);
}

}  // namespace

cudaError_t launch_v4_kda(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan,
                          cudaStream_t stream) {
  if (dtype == DELTAREF_BF16)
    return a.d_k == 64 ? launch<__nv_bfloat16, 64>(a, plan, stream) : launch<__nv_bfloat16, 128>(a, plan, stream);
  return a.d_k == 64 ? launch<__half, 64>(a, plan, stream) : launch<__half, 128>(a, plan, stream);
}

}  // namespace delta::gpu
