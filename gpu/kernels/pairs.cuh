// SPDX-License-Identifier: Apache-2.0
// Blocks of 16 x 16 as sums of two 16-bit numbers each: what the inverse of v5 is made of.
#pragma once
#include "gpu/kernels/hopper.cuh"

namespace delta::gpu {

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
constexpr int kBlockBytes = 4 * 16 * 16, kRestBytes = kBlockBytes / 2;
__device__ inline std::uint32_t own_row(std::uint32_t block) { return block + threadIdx.x % 32 * 16; }
__device__ inline void put_block(std::uint32_t to, const Pair& p) {
  store_matrices(own_row(to), p.big), store_matrices(own_row(to) + kRestBytes, p.small);
}
__device__ inline Pair get_block(std::uint32_t from) {
  Pair p;
  load_matrices(p.big, own_row(from)), load_matrices(p.small, own_row(from) + kRestBytes);
  return p;
}
/// D += A B for such blocks, A in registers; of the four products the smallest is left out.
/// \param big, small  where the lane has its row of B and of its rest
__device__ inline void multiply_pairs(float (&left)[4], float (&right)[4], const Pair& a, std::uint32_t big,
                                      std::uint32_t small) {
  std::uint32_t b[4], rest[4];
  load_matrices_transposed(b, big), load_matrices_transposed(rest, small);
  using bf16 = __nv_bfloat16;
  mma<bf16>(left, a.small, b[0], b[1]), mma<bf16>(right, a.small, b[2], b[3]);
  mma<bf16>(left, a.big, rest[0], rest[1]), mma<bf16>(right, a.big, rest[2], rest[3]);
  mma<bf16>(left, a.big, b[0], b[1]), mma<bf16>(right, a.big, b[2], b[3]);
}
__device__ inline void multiply_blocks(float (&left)[4], float (&right)[4], const Pair& a, std::uint32_t b) {
  multiply_pairs(left, right, a, own_row(b), own_row(b) + kRestBytes);
}

__device__ inline void clear(float (&left)[4], float (&right)[4]) {
#pragma unroll
  for (int e = 0; e < 4; ++e) left[e] = right[e] = 0;
}
__device__ inline void negate(float (&left)[4], float (&right)[4]) {
#pragma unroll
  for (int e = 0; e < 4; ++e) left[e] = -left[e], right[e] = -right[e];
}

/// Where a diagonal block has number (i, j) while it is solved, in fp32: four neighbouring rows lie in different banks.
__device__ inline int in_diagonal(int i, int j) { return 16 * i + (j ^ ((i & 2) << 2)); }
/// As accumulators. \param g, t  the lane's row and its pair of columns
__device__ inline void read_diagonal(float (&left)[4], float (&right)[4], const float* diagonal, int g, int t) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float2 l = two(diagonal + in_diagonal(g + 8 * h, 2 * t)),
                 r = two(diagonal + in_diagonal(g + 8 * h, 2 * t + 8));
    left[2 * h] = l.x, left[2 * h + 1] = l.y, right[2 * h] = r.x, right[2 * h + 1] = r.y;
  }
}

}  // namespace delta::gpu
