// SPDX-License-Identifier: Apache-2.0
// v4: the chunk form on tensor cores, in two stages.
//
// Change      every product of v3 goes through warp-level mma on 16-bit operands with fp32 sums, and what does not
//             depend on the state leaves the serial chain: `prepare` computes for all chunks at once the gates, the
//             inverse and the masked scores; `chain` (chain.cuh) then walks the chunks with S in registers.
// Prediction  164 kFLOP a token and head leave units of 60 TFLOP/s for units of 500: (1, 8192, 64) from about 3 ms of
//             arithmetic to 0.2 ms, plus 0.1 ms for the bytes of the extra stage. x = k + lambda q costs one
//             multiply-add, because S Q^T and Q K^T are needed for the output anyway.
// Gained      (1, 8192, 64) on an H200: 0.72 ms with a warp for 16 rows of S, 0.66 with a team of four warps for 32,
//             0.61 with warps that only fetch. (1, 8192, 16): 0.52, then 0.36; 0.27 with four stages instead of two,
//             for there the chain waited for memory. The rest of N as a second operand took nothing, for zeros of N are
//             no longer multiplied. So 0.65 where v3 takes 29, and 0.29 where it takes 15.
#include "gpu/kernels/chain.cuh"
#include "gpu/kernels/inverse.cuh"
#include "gpu/kernels/launch.hpp"

namespace delta::gpu {
namespace {

constexpr int kThreads = 128;

/// Below this a decay is exactly 0 in fp32 wherever it is part of a product: alpha = 0 becomes a finite logarithm, and
/// every ratio that spans it is exactly 0, while ratios after it keep their digits.
constexpr double kResetLog = -1000;

/// Shared memory: Q and K, later L and A in their place; P; then numbers per token.
template <int D> struct Shared {
  static constexpr int kTileBytes = kChunk * D * 2, kSquares = 2 * kChunk * kSquare * 4;
  static constexpr int kP = 2 * kTileBytes > kSquares ? 2 * kTileBytes : kSquares;
  static constexpr int kNumbers = kP + kChunk * kChunk * 2, kBytes = kNumbers + 6 * kChunk * 4;
};

/// For one chunk of one head, S not needed:
/// \f[ L_g = \mathrm{sl}(B (H \odot X K^\top)), \quad N = (I + L_g)^{-1} - I, \quad P = \mathrm{scale}\,(H \odot Q
/// K^\top) \f] H_ij = exp(G_i - G_j), the exponent masked to j <= i before exp. G is summed in fp64 from the chunk's
/// start and kept as high + low, so weak gates after strong ones are not lost. The norm of q and k, where it is asked
/// for, is a factor a row; the rows themselves are never rounded again. \formula{F37} \formula{F83}
template <class In, int D> __global__ void __launch_bounds__(kThreads, 4) prepare(const Arguments a) {
  constexpr int kRowBytes = 2 * D, kTileBytes = Shared<D>::kTileBytes, kPieces = kRowBytes / 16;
  extern __shared__ __align__(128) unsigned char memory[];
  float* const L = reinterpret_cast<float*>(memory);
  float* const A = L + kChunk * kSquare;
  unsigned char* const P = memory + Shared<D>::kP;
  float* const high = reinterpret_cast<float*>(memory + Shared<D>::kNumbers);
  float *const low = high + kChunk, *const beta = low + kChunk, *const lambda = beta + kChunk;
  float *const q_norm = lambda + kChunk, *const k_norm = q_norm + kChunk;
  const std::uint32_t K = shared_address(memory), Q = K + kTileBytes;
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
    copy_async(K + to, r < c ? k + r * a.k.stride_t + piece * 8 : k, r < c);
    copy_async(Q + to, r < c ? q + r * a.q.stride_t + piece * 8 : q, r < c);
  }
  commit_copies();

  if (warp == 0) {  // G_i: a lane sums two tokens, the lanes scan
    double log_decay[2] = {0, 0};
    for (int e = 0; e < 2; ++e) {
      const int i = 2 * thread + e;
      if (i >= c || !a.g.data) continue;
      const double x = *row<float>(a.g, s, begin + i, head);
      log_decay[e] = a.gate_is_log ? x : log(x);
      if (log_decay[e] < kResetLog) log_decay[e] = kResetLog;  // a NaN stays one
    }
    double sum = log_decay[0] + log_decay[1];
    for (int step = 1; step < 32; step *= 2) {
      const double before = __shfl_up_sync(0xffffffffu, sum, step);
      if (thread >= step) sum += before;
    }
    const double before = __shfl_up_sync(0xffffffffu, sum, 1);
    double G = thread == 0 ? 0 : before;
    for (int e = 0; e < 2; ++e) {
      G += log_decay[e];
      const double bits = G * 1.4426950408889634;  // log2
      high[2 * thread + e] = static_cast<float>(bits);
      low[2 * thread + e] = static_cast<float>(bits - static_cast<double>(static_cast<float>(bits)));
    }
  } else if (warp == 1) {
    for (int i = thread % 32; i < kChunk; i += 32) {
      beta[i] = i < c ? scalar<float>(a.beta, s, begin + i, head, 1) : 0;
      lambda[i] = i < c ? scalar<float>(a.lambda, s, begin + i, head, 0) : 0;
    }
  }
  wait_copies<0>();
  __syncthreads();

  {
    const int i = thread % kChunk;
    float norm = 1;
    if (a.l2norm) {
      float sum = 0;
      for (int piece = 0; piece < kPieces; ++piece) {
        const In* const x =
            reinterpret_cast<const In*>(memory + thread / kChunk * kTileBytes + swizzled<kRowBytes>(i, piece));
        for (int e = 0; e < 8; ++e) sum += number<float>(x[e]) * number<float>(x[e]);
      }
      norm = i < c ? 1 / sqrtf(sum + static_cast<float>(a.eps)) : 0;
    }
    (thread < kChunk ? k_norm : q_norm)[i] = norm;
  }

  // Warp w computes rows 16 w .. 16 w + 15 of K K^T and Q K^T, up to the diagonal.
  float KK[8][4] = {}, QK[8][4] = {};
#pragma unroll
  for (int d = 0; d < D / 16; ++d) {
    std::uint32_t key[4], query[4];
    operand_left<kRowBytes>(key, K, warp, d);
    operand_left<kRowBytes>(query, Q, warp, d);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j <= warp) {
        std::uint32_t b[4];
        operand_rows<kRowBytes>(b, K, j, d);
        mma<In>(KK[2 * j], key, b[0], b[1]), mma<In>(KK[2 * j + 1], key, b[2], b[3]);
        mma<In>(QK[2 * j], query, b[0], b[1]), mma<In>(QK[2 * j + 1], query, b[2], b[3]);
      }
  }
  __syncthreads();  // K and Q are used up: L and A may take their place

#pragma unroll
  for (int tile = 0; tile < 8; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 16 * warp + g + 8 * half;
      float p[2] = {0, 0};
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int j = 8 * tile + 2 * t + e;
        float l = 0;
        if (tile <= 2 * warp + 1 && j <= i) {
          const float H = power_of_two((high[i] - high[j]) + (low[i] - low[j]));
          const float qk = QK[tile][2 * half + e] * (q_norm[i] * k_norm[j]),
                      kk = KK[tile][2 * half + e] * (k_norm[i] * k_norm[j]);
          p[e] = static_cast<float>(a.scale) * H * qk;
          if (j < i) l = beta[i] * H * ((a.reads_key ? kk : 0) + lambda[i] * qk);
        }
        if (tile <= 2 * warp + 1) L[i * kSquare + j] = l;
      }
      *reinterpret_cast<std::uint32_t*>(P + swizzled<128>(i, tile) + 4 * t) = pack<In>(p[0], p[1]);
    }
  __syncthreads();
  invert_unit_lower(A, L);

  const ChunkWorkspace<D, false> workspace(a.workspace);
  store_matrices_of_chunk<In>(workspace, chunk, A, P, kThreads);
  if (thread < kChunk) {
    const int i = thread, last = kChunk - 1;
    float* const factor = workspace.tokens(chunk);
    const float gamma = power_of_two(high[i] + low[i]), scale = static_cast<float>(a.scale);
    factor[kBeta * kChunk + i] = beta[i];
    factor[kReadKey * kChunk + i] = a.reads_key ? beta[i] * gamma * k_norm[i] : 0;
    factor[kReadQuery * kChunk + i] = beta[i] * gamma * lambda[i] * q_norm[i];
    factor[kOutput * kChunk + i] = scale * gamma * q_norm[i];
    factor[kWrite * kChunk + i] = power_of_two((high[last] - high[i]) + (low[last] - low[i])) * k_norm[i];
    for (int j = i; j < D; j += kChunk) factor[kFactors * kChunk + j] = power_of_two(high[last] + low[last]);
    if (a.trace.gamma && i < c) static_cast<float*>(a.trace.gamma)[chunk * kChunk + i] = gamma;
  }

  // What the formulas name and this kernel does not need, from its own inverse.
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
  if (a.trace.W)
    for (int e = thread; e < c * D; e += kThreads) {
      float sum = 0;
      for (int j = 0; j <= e / D; ++j) {
        const float key = a.reads_key ? number<float>(k[j * a.k.stride_t + e % D]) * k_norm[j] : 0;
        const float x = key + lambda[j] * q_norm[j] * number<float>(q[j * a.q.stride_t + e % D]);
        sum += A[e / D * kSquare + j] * beta[j] * power_of_two(high[j] + low[j]) * x;
      }
      static_cast<float*>(a.trace.W)[chunk * kChunk * D + e] = sum;
    }
}

template <class In, int D>
cudaError_t launch(const Arguments& a, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  constexpr int shared = Shared<D>::kBytes;
  static_assert(shared <= v4_shared(D, 16, false, 2));  // where the serial stage fits, so does this one
  const cudaError_t error = allow_all_shared_memory(prepare<In, D>);
  if (error != cudaSuccess) return error;
  prepare<In, D><<<static_cast<unsigned>(plan.slots * a.HV), kThreads, shared, stream>>>(a);
  if (const cudaError_t launched = cudaGetLastError(); launched != cudaSuccess) return launched;
  return launch_chain<In, D, false>(a, plan, stream);
}

}  // namespace

cudaError_t launch_v4(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  if (dtype == DELTAREF_BF16)
    return a.d_k == 64 ? launch<__nv_bfloat16, 64>(a, plan, stream) : launch<__nv_bfloat16, 128>(a, plan, stream);
  return a.d_k == 64 ? launch<__half, 64>(a, plan, stream) : launch<__half, 128>(a, plan, stream);
}

}  // namespace delta::gpu
