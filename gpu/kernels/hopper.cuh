// SPDX-License-Identifier: Apache-2.0
// The instructions of v5 to v7: barriers in shared memory, the copy engine, and products of a whole warpgroup. sm_90a.
//
// wgmma m64nNk16: D [64 x N] (+)= A [64 x 16] B [16 x N] by 128 threads. Warp w has the rows 16 w .. 16 w + 15, and in
// a warp, with g = lane / 4 and t = lane % 4, four accumulators for every 8 columns j:
//   d[4 j], d[4 j + 1] = D(g, 8 j + 2 t), D(g, 8 j + 2 t + 1)        d[4 j + 2], d[4 j + 3] = the same of row g + 8
// A from registers lies likewise: the accumulators of 16 columns, rounded and packed, are the A of the next product.
// A may lie in shared memory too, as B does.
// B comes from shared memory, in tiles of 128-byte rows whose 16-byte pieces are exchanged as `swizzled<128>` does.
#pragma once
#include <cuda.h>

#include <type_traits>

#include "gpu/kernels/mma.cuh"
#include "gpu/plan.hpp"

namespace delta::gpu {

/// What one lane of a converged warp does. Predicated and not branched around, its operands stay in uniform registers.
#define DELTA_ONE_LANE(instruction) "{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\n@one " instruction ";\n}\n"

// ---------------------------------------------------------------- barriers

__device__ inline void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// So many more bytes will be brought by the copy engine before the phase completes.
__device__ inline void expect_bytes(std::uint32_t barrier, int bytes) {
  asm volatile(DELTA_ONE_LANE("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1")::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
/// By one lane of a converged warp.
__device__ inline void arrive_once(std::uint32_t barrier) {
  asm volatile(DELTA_ONE_LANE("mbarrier.arrive.shared::cta.b64 _, [%0]")::"r"(barrier) : "memory");
}
/// Waits until the phase of that parity has completed.
__device__ inline void wait(std::uint32_t barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
/// Makes barriers known to the copy engine and to the other blocks of the cluster, before they are met.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory"); }

// ---------------------------------------------------------------- clusters

__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}
/// All threads of all blocks of the cluster meet.
__device__ inline void cluster_barrier() {
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;\n" ::: "memory");
}
/// Where another block of the cluster has what lies at `address` here.
__device__ inline std::uint32_t in_block(unsigned rank, std::uint32_t address) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
/// Arrives at a barrier of another block. In the scope of a block, for it hands over room and no data: the scope of a
/// cluster costs a fence for all of memory.
__device__ inline void arrive_there(std::uint32_t barrier) {
  asm volatile(DELTA_ONE_LANE("mbarrier.arrive.shared::cluster.b64 _, [%0]")::"r"(barrier) : "memory");
}
/// Copies bytes of this block's shared memory to another block's, whose barrier counts them.
__device__ inline void send_bytes(std::uint32_t to, std::uint32_t from, int bytes, std::uint32_t barrier) {
  asm volatile(
      DELTA_ONE_LANE(
          "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3]")::"r"(to),
      "r"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Makes what this thread wrote to shared memory, or knows by a barrier to be written, visible to the copy engine and
/// the tensor cores.
__device__ inline void fence_shared() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

// ---------------------------------------------------------------- the copy engine

/// 64 tokens x 64 channels of one head, from that token on, as a swizzled tile of 8 KB; zeros beyond the tensor.
__device__ inline void load_tile(std::uint32_t to, const CUtensorMap& map, int channel, int head, int token, int batch,
                                 std::uint32_t barrier) {
  asm volatile(
      DELTA_ONE_LANE("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
                     "{%3, %4, %5, %6}], [%2]")::"r"(to),
      "l"(&map), "r"(barrier), "r"(channel), "r"(head), "r"(token), "r"(batch)
      : "memory");
}

/// 64 tokens x all channels of one head, tile after tile.
__device__ inline void load_tiles(std::uint32_t to, const CUtensorMap& map, int token, int head, int batch,
                                  std::uint32_t barrier) {
  asm volatile(
      DELTA_ONE_LANE("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
                     "{%6, %3, %6, %4, %5}], [%2]")::"r"(to),
      "l"(&map), "r"(barrier), "r"(token), "r"(head), "r"(batch), "r"(0)
      : "memory");
}

/// From shared memory; rows beyond the tensor are left out. What is stored may be written over when it has been read.
__device__ inline void store_tiles(const CUtensorMap& map, std::uint32_t from, int token, int head, int batch) {
  asm volatile(
      DELTA_ONE_LANE(
          "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%5, %2, %5, %3, %4}], [%1]")::"l"(&map),
      "r"(from), "r"(token), "r"(head), "r"(batch), "r"(0)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}
__device__ inline void wait_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory"); }

// ---------------------------------------------------------------- products

/// Where accumulator e of a thread lies: in row g + row_of(e), column 2 t + column_of(e).
__device__ constexpr int row_of(int e) { return e / 2 % 2 * 8; }
__device__ constexpr int column_of(int e) { return e / 4 * 8 + e % 2; }

/// Where tiles lie, as descriptors count: in 16 bytes, and without the bits that name a block of a cluster.
__device__ inline std::uint32_t place_of(std::uint32_t address) { return (address & 0x3ffff) >> 4; }

__device__ inline std::uint64_t descriptor(std::uint32_t low) {
  constexpr std::uint32_t kHigh = 1u << 30 | 1024 >> 4;  // swizzled by 128 bytes; eight rows are 1024 bytes
  std::uint64_t d;
  asm("mov.b64 %0, {%1, %2};\n" : "=l"(d) : "r"(low), "r"(kHigh));
  return d;
}
/// A tile of 128-byte rows, each row one n (B) or m (A), its columns along k: 16 columns further are 32 bytes.
__device__ inline std::uint64_t rows_along_k(std::uint32_t place, int bytes) {
  return descriptor(place + (1u << 16 | static_cast<unsigned>(bytes) >> 4));
}
/// The same tile read the other way, each row one k: 16 rows further are 2048 bytes, 64 columns further `next` bytes.
__device__ inline std::uint64_t rows_along_n(std::uint32_t place, int bytes, int next) {
  return descriptor(place + (static_cast<unsigned>(next) >> 4 << 16 | static_cast<unsigned>(bytes) >> 4));
}

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
/// Until at most so many committed groups are pending.
template <int Pending> __device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(Pending) : "memory");
}
/// Keeps the compiler from moving what uses these registers across this place. Costs no instruction.
template <int N> __device__ inline void pin(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int N> __device__ inline void pin(std::uint32_t (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

#define DELTA_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define DELTA_D16(i) DELTA_D4(i), DELTA_D4(i + 4), DELTA_D4(i + 8), DELTA_D4(i + 12)
#define DELTA_N16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define DELTA_N32 DELTA_N16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define DELTA_N64                                                                 \
  DELTA_N32                                                                       \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50," \
  "%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/// D (+)= A B with A in registers: `multiply` for 64 columns, `multiply_along_n` for 64 and 128 where B's rows lie
/// along n. LIST and OPERANDS are the accumulators, as places and as constraints; A0 .. ADD are the others' places.
#define DELTA_PRODUCT(NAME, REGISTERS, N, LIST, OPERANDS, A0, A1, A2, A3, B, ADD, ALONG_N)                          \
  template <class In>                                                                                               \
  __device__ inline void NAME(float(&d)[REGISTERS], const std::uint32_t* a, std::uint64_t b, int add = 1) {         \
    if constexpr (std::is_same_v<In, __half>)                                                                       \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" N              \
                   "k16.f32.f16.f16 {" LIST "}, {" A0 "," A1 "," A2 "," A3 "}, " B ", p, 1, 1, " ALONG_N ";\n}\n"   \
                   : OPERANDS                                                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                 \
    else                                                                                                            \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" N              \
                   "k16.f32.bf16.bf16 {" LIST "}, {" A0 "," A1 "," A2 "," A3 "}, " B ", p, 1, 1, " ALONG_N ";\n}\n" \
                   : OPERANDS                                                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                 \
  }
#define DELTA_D32 DELTA_D16(0), DELTA_D16(16)
#define DELTA_D64 DELTA_D32, DELTA_D16(32), DELTA_D16(48)
DELTA_PRODUCT(multiply, 32, "64", DELTA_N32, DELTA_D32, "%32", "%33", "%34", "%35", "%36", "%37", "0")
DELTA_PRODUCT(multiply_along_n, 32, "64", DELTA_N32, DELTA_D32, "%32", "%33", "%34", "%35", "%36", "%37", "1")
DELTA_PRODUCT(multiply_along_n, 64, "128", DELTA_N64, DELTA_D64, "%64", "%65", "%66", "%67", "%68", "%69", "1")

/// D (+)= A B for 32 columns in tf32, m64n32k8. Eight columns of accumulators make an A by `as_tf32`; then B has the
/// numbers of eight columns in the order 0 2 4 6 1 3 5 7 along k, for a thread's two neighbours are four apart there.
__device__ inline void multiply_tf32(float (&d)[16], const std::uint32_t* a, std::uint64_t b, int add = 1) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 {" DELTA_N16
      "}, {%16,%17,%18,%19}, %20, p, 1, 1;\n}\n"
      : DELTA_D16(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

/// D (+)= A B with both in shared memory, 64 columns, B's rows along k: `multiply_tiles` for an A with rows along k,
/// `multiply_columns` for one with rows along m.
#define DELTA_PRODUCT_OF_TILES(NAME, ALONG_M)                                                                 \
  template <class In> __device__ inline void NAME(float(&d)[32], std::uint64_t a, std::uint64_t b, int add) { \
    if constexpr (std::is_same_v<In, __half>)                                                                 \
      asm volatile(                                                                                           \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "     \
          "{" DELTA_N32 "}, %32, %33, p, 1, 1, " ALONG_M ", 0;\n}\n"                                          \
          : DELTA_D32                                                                                         \
          : "l"(a), "l"(b), "r"(add));                                                                        \
    else                                                                                                      \
      asm volatile(                                                                                           \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "   \
          "{" DELTA_N32 "}, %32, %33, p, 1, 1, " ALONG_M ", 0;\n}\n"                                          \
          : DELTA_D32                                                                                         \
          : "l"(a), "l"(b), "r"(add));                                                                        \
  }
DELTA_PRODUCT_OF_TILES(multiply_tiles, "0")
DELTA_PRODUCT_OF_TILES(multiply_columns, "1")

// ---------------------------------------------------------------- small things

/// x, which is the same in all lanes, as the compiler now knows: what is made of it can stay in uniform registers.
__device__ inline int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }
/// Four numbers of a longer array.
template <class T> __device__ inline T (&four(T* x))[4] { return reinterpret_cast<T(&)[4]>(*x); }
/// Registers of every thread of the warpgroup from here on.
template <int Count> __device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(Count));
}
template <int Count> __device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(Count));
}
/// Four 8 x 8 matrices of 16-bit numbers to shared memory, transposed or not; a lane gives the address of one row.
__device__ inline void store_matrices(std::uint32_t address, const std::uint32_t* r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(address), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ inline void store_matrices_transposed(std::uint32_t address, const std::uint32_t* r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
/// Below this a log decay is exactly 0 in fp32 wherever it is part of a product, as in v4.
constexpr double kResetLog = -1000;
/// Neighbours that lie at a multiple of 8 bytes.
__device__ inline float2 two(const float* x) { return *reinterpret_cast<const float2*>(x); }
__device__ inline void put_two(float* to, float x, float y) { *reinterpret_cast<float2*>(to) = make_float2(x, y); }
/// Two numbers from shared memory, asked for in this place of the program.
__device__ inline void load_pair(float& x, float& y, std::uint32_t address) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];\n" : "=f"(x), "=f"(y) : "r"(address) : "memory");
}
__device__ inline std::uint32_t load_word(std::uint32_t address) {
  std::uint32_t x;
  asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(x) : "r"(address) : "memory");
  return x;
}
/// Stores 16 bytes, or nothing. In one instruction: a branch between a product and its wait would serialise the
/// products.
__device__ inline void store_if(bool there, void* to, const uint4& x) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}\n" ::"l"(to),
               "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(static_cast<int>(there))
               : "memory");
}
__device__ inline void team_barrier(int id) { asm volatile("bar.sync %0, 128;\n" ::"r"(id) : "memory"); }

// ---------------------------------------------------------------- tiles

constexpr int kTileBytes = kSquareBytes;  ///< 64 x 64 numbers of 16 bits

/// Zeros in whole tiles, by one warp.
__device__ inline void clear_tiles(unsigned char* tiles, int number) {
#pragma unroll 1
  for (int at = threadIdx.x % 32 * 16; at < number * kTileBytes; at += 32 * 16)
    *reinterpret_cast<uint4*>(tiles + at) = make_uint4(0, 0, 0, 0);
  fence_shared();
}
/// Zeros in the rows count .. 63 of tiles of 128-byte rows: what lies beyond a sequence's end, NaN included, is not
/// read.
template <int Threads> __device__ inline void clear_rows(unsigned char* tiles, int number, int count, int thread) {
  for (int e = thread; e < number * (kChunk - count) * 8; e += Threads) {
    const int tile = e / ((kChunk - count) * 8), rest = e % ((kChunk - count) * 8);
    *reinterpret_cast<uint4*>(tiles + tile * kTileBytes + (count + rest / 8) * 128 + rest % 8 * 16) =
        make_uint4(0, 0, 0, 0);
  }
  fence_shared();
}

}  // namespace delta::gpu
