// SPDX-License-Identifier: Apache-2.0
// The inverse of a unit lower triangular 64 x 64 matrix in fp32, by four of the block's warps.
#pragma once
#include "gpu/kernels/mma.cuh"

namespace delta::gpu {

constexpr int kSquare = 68;  ///< row length of a 64 x 64 fp32 matrix in shared memory: fragments read without conflicts

/// x = big + small, both with the 10 bits of a tf32 operand: a product of such pairs has 21 good bits.
struct Split {
  std::uint32_t big, small;
  __device__ explicit Split(float x) {
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(big) : "f"(x));
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(small) : "f"(x - __uint_as_float(big)));
  }
};

/// D [16 x 16] += M N for two 16 x 16 blocks of fp32 numbers in shared memory, rows `kSquare` apart.
__device__ inline void multiply_blocks(float (&D)[2][4], const float* M, const float* N) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int k = 0; k < 16; k += 8) {
    const Split m[4] = {Split(M[g * kSquare + k + t]), Split(M[(g + 8) * kSquare + k + t]),
                        Split(M[g * kSquare + k + t + 4]), Split(M[(g + 8) * kSquare + k + t + 4])};
    const std::uint32_t big[4] = {m[0].big, m[1].big, m[2].big, m[3].big};
    const std::uint32_t small[4] = {m[0].small, m[1].small, m[2].small, m[3].small};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const Split n0(N[(k + t) * kSquare + 8 * n + g]), n1(N[(k + t + 4) * kSquare + 8 * n + g]);
      mma_tf32(D[n], small, n0.big, n1.big);
      mma_tf32(D[n], big, n0.small, n1.small);
      mma_tf32(D[n], big, n0.big, n1.big);
    }
  }
}

/// Writes sign * D into a 16 x 16 block.
__device__ inline void store_block(float* M, const float (&D)[2][4], float sign) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    M[g * kSquare + 8 * n + 2 * t] = sign * D[n][0], M[g * kSquare + 8 * n + 2 * t + 1] = sign * D[n][1];
    M[(g + 8) * kSquare + 8 * n + 2 * t] = sign * D[n][2], M[(g + 8) * kSquare + 8 * n + 2 * t + 1] = sign * D[n][3];
  }
}

/// A = (I + L)^{-1}: the diagonal 16 x 16 blocks by forward substitution, the others block by block,
/// \f[ A_{ij} = -A_{ii} \sum_{k=j}^{i-1} L_{ik} A_{kj}. \f]
/// Never a power of L: with repeated keys those reach 4.65e17 while no entry of A exceeds 1.
/// Warp w < 4 owns block column w, and block (w, i) above the diagonal as scratch: there A is not to be read.
/// \param L [64][kSquare], its strictly lower part is read   \param A [64][kSquare]
/// \formula{F38}
__device__ inline void invert_unit_lower(float* A, const float* L) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < 4 && lane < 16) {  // lane c solves (I + L_ww) a = e_c
    const float* const D = L + 16 * warp * (kSquare + 1);
    float a[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float sum = 0;
#pragma unroll
      for (int j = 0; j < i; ++j) sum += D[i * kSquare + j] * a[j];
      a[i] = static_cast<float>(i == lane) - sum;
      A[(16 * warp + i) * kSquare + 16 * warp + lane] = a[i];
    }
  }
  __syncthreads();
  for (int i = warp + 1; i < 4; ++i) {
    float sum[2][4] = {}, product[2][4] = {};
    for (int k = warp; k < i; ++k) multiply_blocks(sum, L + 16 * (i * kSquare + k), A + 16 * (k * kSquare + warp));
    float* const scratch = A + 16 * (warp * kSquare + i);
    store_block(scratch, sum, -1);
    __syncwarp();
    multiply_blocks(product, A + 16 * i * (kSquare + 1), scratch);
    store_block(A + 16 * (i * kSquare + warp), product, 1);
    __syncwarp();
  }
  __syncthreads();
}

}  // namespace delta::gpu
