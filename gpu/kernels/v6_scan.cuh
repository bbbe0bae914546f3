// SPDX-License-Identifier: Apache-2.0
// v6: a sequence in segments that are walked at the same time. Exact, because what tokens make of a state is affine.
//
// Change      v5 walks the chunks of a head one after the other, so that few heads leave most multiprocessors idle. v6
//             walks twice with the same kernel, `walk_heads`, and all segments of a sequence side by side. The first
//             walk finds what each makes of the state before it, S M_s + N_s: N_s from S = 0, M_s from S = I without V.
//             Between the two, here, the states that they start from. The second walks each from its own.
// Prediction  2 n / segments chunks in a row instead of n, where multiprocessors suffice for all parts at once; the
//             launches and this scan cost 15 us and 1 us a segment. (1, 65536, 2): 1.1 ms becomes 0.2 ms.
// Gained      on an H200 (1, 65536, 2) takes 0.28 ms instead of 1.03, (1, 65536, 8) 0.68. Filling both walks and
//             letting them run dry costs more than launching them: 40 us in all.
#pragma once
#include "gpu/kernels/v5_cluster.cuh"

namespace delta::gpu {

constexpr int kScanRows = 8, kScanThreads = 512;  ///< of a block

/// \f[ S_{s+1} = S_s M_s + N_s, \f]
/// each in the place of N_s. Rows of S are independent of each other: a block has eight of a pair. A thread has a
/// column of S and a share of the sum over M's rows, whose numbers it holds in registers before S_s is there.
/// \param matrices  of each pair S_1, N_1, N_2 .., then M_1, M_2 .., [D x D] each
/// \formula{F59} \formula{F60}
template <int D> __global__ void __launch_bounds__(kScanThreads) find_starts(float* matrices, unsigned segments) {
  constexpr int kShares = kScanThreads / D, kLength = D / kShares, kOwn = kScanRows * D / kScanThreads;
  __shared__ __align__(16) float S[kScanRows * D];
  __shared__ float sums[kShares][kScanRows * D];
  const int thread = static_cast<int>(threadIdx.x), column = thread % D, begin = thread / D * kLength;
  const unsigned blocks = D / kScanRows;  // of a pair
  float* const pair = matrices + static_cast<std::int64_t>(blockIdx.x / blocks) * matrices_of(segments) * D * D;
  float* const rows = pair + blockIdx.x % blocks * kScanRows * D;  // the block's, of the matrix that comes first

  float m[kLength];  // M_s, rows begin ..
  const auto fetch = [&](unsigned s) {
    const float* const M = pair + static_cast<std::int64_t>(segments - 2 + s) * D * D + begin * D + column;
#pragma unroll
    for (int k = 0; k < kLength; ++k) m[k] = M[k * D];
  };
  fetch(1);
#pragma unroll
  for (int e = 0; e < kOwn; ++e) S[e * kScanThreads + thread] = rows[e * kScanThreads + thread];
  for (unsigned s = 1; s + 1 < segments; ++s) {
    float* const N = rows + static_cast<std::int64_t>(s) * D * D;
    float next[kOwn];
#pragma unroll
    for (int e = 0; e < kOwn; ++e) next[e] = N[e * kScanThreads + thread];
    __syncthreads();  // S_s is there
    float sum[kScanRows] = {};
#pragma unroll
    for (int k = 0; k < kLength; k += 4)
#pragma unroll
      for (int i = 0; i < kScanRows; ++i) {
        const float4 x = *reinterpret_cast<const float4*>(&S[i * D + begin + k]);
        sum[i] += x.x * m[k], sum[i] += x.y * m[k + 1], sum[i] += x.z * m[k + 2], sum[i] += x.w * m[k + 3];
      }
#pragma unroll
    for (int i = 0; i < kScanRows; ++i) sums[thread / D][i * D + column] = sum[i];
    if (s + 2 < segments) fetch(s + 1);
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      const int at = e * kScanThreads + thread;
      float product = 0;  // summed before N joins it, which may be much larger
#pragma unroll
      for (int share = 0; share < kShares; ++share) product += sums[share][at];
      N[at] = S[at] = product + next[e];
    }
  }
}

}  // namespace delta::gpu
