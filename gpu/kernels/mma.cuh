// SPDX-License-Identifier: Apache-2.0
// The warp-level instructions of v4 to v7, and how a 16-bit tile lies in shared memory. sm_80 and newer.
//
// mma m16n8k16: D [16 x 8] += A [16 x 16] B [16 x 8], with g = lane / 4 and t = lane % 4
//   accumulator  c0 c1 = D(g, 2t), D(g, 2t+1)      c2 c3 = D(g + 8, 2t), D(g + 8, 2t+1)
//   A            a0 = A(g, 2t..)  a1 = A(g + 8, 2t..)  a2 = A(g, 2t + 8..)  a3 = A(g + 8, 2t + 8..)
// so two neighbouring accumulator tiles, rounded and packed, are the A operand of the next product: no exchange.
#pragma once
#include "gpu/kernels/arguments.cuh"

namespace delta::gpu {

/// Rounds two numbers and packs them, the first in the low half.
template <class In> __device__ inline std::uint32_t pack(float low, float high);
template <> __device__ inline std::uint32_t pack<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(x);
}
template <> __device__ inline std::uint32_t pack<__half>(float low, float high) {
  const __half2 x = __floats2half2_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(x);
}
template <class In> __device__ inline float2 unpack(std::uint32_t x);
template <> __device__ inline float2 unpack<__nv_bfloat16>(std::uint32_t x) {  // a bf16 is the upper half of an fp32
  return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
}
template <> __device__ inline float2 unpack<__half>(std::uint32_t x) {
  return __half22float2(reinterpret_cast<const __half2&>(x));
}

/// a b + c of two numbers each, rounded once.
template <class In> __device__ inline std::uint32_t multiply_add(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t d;
  if constexpr (std::is_same_v<In, __half>)
    asm("fma.rn.f16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

template <class In>
__device__ inline void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<In, __half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The nearest number of 11 bits.
__device__ inline std::uint32_t as_tf32(float x) {
  std::uint32_t y;
  asm("cvt.rn.tf32.f32 %0, %1;\n" : "=r"(y) : "f"(x));
  return y;
}
/// Accumulators of 8 columns as the A of m16n8k8 or m64nNk8.
__device__ inline void as_tf32(std::uint32_t* a, const float* d) {
  a[0] = as_tf32(d[0]), a[1] = as_tf32(d[2]), a[2] = as_tf32(d[1]), a[3] = as_tf32(d[3]);
}
/// D += A B, m16n8k8.
__device__ inline void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Two neighbouring accumulator tiles as one A operand.
template <class In>
__device__ inline void as_operand(std::uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = pack<In>(left[0], left[1]), a[1] = pack<In>(left[2], left[3]);
  a[2] = pack<In>(right[0], right[1]), a[3] = pack<In>(right[2], right[3]);
}

/// 2^x in one instruction, 2 ulp; what is below the smallest normal number is 0.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

/// What rounding leaves out: a, which holds left and right rounded, becomes the operand of what they lack.
template <class In>
__device__ inline void rest_of_operand(std::uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  auto rest = [](std::uint32_t rounded, float low, float high) {
    const float2 x = unpack<In>(rounded);
    return pack<In>(low - x.x, high - x.y);
  };
  a[0] = rest(a[0], left[0], left[1]), a[1] = rest(a[1], left[2], left[3]);
  a[2] = rest(a[2], right[0], right[1]), a[3] = rest(a[3], right[2], right[3]);
}

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
__device__ inline void load_matrices(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// Copies 16 bytes to shared memory without waiting; zeros where `there` is false. Nothing is read then, so what lies
/// beyond a sequence's end, NaN included, has no influence.
__device__ inline void copy_async(std::uint32_t shared, const void* global, bool there = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(global), "r"(there ? 16 : 0)
               : "memory");
}
/// Copies 4 bytes so.
__device__ inline void copy_number(std::uint32_t shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(shared), "l"(global) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int Pending> __device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Pending) : "memory");
}

/// Byte offset of the 16-byte piece `piece` of row r in a tile of `Bytes` per row. The exclusive or spreads eight rows
/// over all banks, so ldmatrix reads without conflicts.
template <int Bytes> __device__ inline int swizzled(int r, int piece) {
  if constexpr (Bytes >= 128)
    return r * Bytes + ((piece ^ (r & 7)) << 4);
  else  // 32 bytes: four rows a pass over the banks
    return r * Bytes + ((piece ^ ((r >> 2) & 1)) << 4);
}

/// The B operand of a product with M^T: B(k, n) = M(n, k), for n in [16 n16, +16) and k in [16 k16, +16).
/// r[0], r[1] serve the first eight n, r[2], r[3] the others.
template <int Bytes> __device__ inline void operand_rows(std::uint32_t (&r)[4], std::uint32_t tile, int n16, int k16) {
  const int lane = threadIdx.x % 32;
  load_matrices(r, tile + swizzled<Bytes>(16 * n16 + (lane & 7) + (lane >> 4) * 8, 2 * k16 + ((lane >> 3) & 1)));
}
/// The B operand of a product with M: B(k, n) = M(k, n), same blocks.
template <int Bytes>
__device__ inline void operand_columns(std::uint32_t (&r)[4], std::uint32_t tile, int k16, int n16) {
  const int lane = threadIdx.x % 32;
  load_matrices_transposed(
      r, tile + swizzled<Bytes>(16 * k16 + (lane & 7) + ((lane >> 3) & 1) * 8, 2 * n16 + (lane >> 4)));
}
/// The A operand: rows [16 m16, +16), columns [16 k16, +16) of M.
template <int Bytes> __device__ inline void operand_left(std::uint32_t (&r)[4], std::uint32_t tile, int m16, int k16) {
  const int lane = threadIdx.x % 32;
  load_matrices(r, tile + swizzled<Bytes>(16 * m16 + (lane & 7) + ((lane >> 3) & 1) * 8, 2 * k16 + (lane >> 4)));
}

}  // namespace delta::gpu
