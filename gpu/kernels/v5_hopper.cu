// SPDX-License-Identifier: Apache-2.0
// v5: the schedule of v4 with the instructions of Hopper.
//
// Change      a warpgroup's products (wgmma) for warp-level mma, and the copy engine (TMA) for warps that fetch. 64
// rows of
//             S are the accumulators of one warpgroup, fp32, from the first chunk to the last; rounded and packed in
//             place they are the left operand of S [K; Q]^T, as R and Z are of the products after it. Where heads leave
//             multiprocessors idle, those prepare the next chunks while the chain walks the first.
// Prediction  64 rows of a chunk are 1200 cycles of the tensor cores, 0.7 us; with a wait after each of four
// products 1.3 us
//             where v4 takes 2.7: (1, 8192, 64) from 0.65 to 0.27 ms, of which 0.1 for the first stage.
// Gained      on an H200 (1, 8192, 64) 0.38 ms, (8, 2048, 16) 0.21 where v4 takes 0.35, (1, 8192, 16) 0.21 where it
// takes
//             0.29. A chunk takes 1.6 us: one warp a scheduler has nobody to hide its conversions behind. On the way: a
//             descriptor in ordinary registers cost ten instructions a product; a fence of the copy engine that is not
//             limited to shared memory, a microsecond a chunk; two warpgroups of 64 rows in a block multiplied and
//             waited in step, 3.0 us a chunk. A warpgroup in the block of each chain that prepares its chunks was
//             slower than all chunks before the first (0.42): 1500 instructions a warp, one after the other.
#include "gpu/kernels/launch.hpp"
#include "gpu/kernels/v5_prepare.cuh"

namespace delta::gpu {
namespace {

/// Shared memory of a block: barriers; what a warp needs to turn o^T round; stages, each K, Q, V of 64 rows and the
/// record. A block that prepares has the memory of four teams instead.
template <int D> struct ChainShared {
  static constexpr int kDepth = 3, kTeams = 4;
  static constexpr int kFull = 0, kFree = 8 * kDepth, kTail = 16 * kDepth;
  static constexpr int kOutput = 1024, kWarpOutput = kChunk * 32, kStages = kOutput + 4 * kWarpOutput;
  static constexpr int kKeys = D / 64 * 8192, kKey = 0, kQuery = kKeys, kValue = 2 * kKeys, kRecord = kValue + 8192;
  static constexpr int kStage = kRecord + Record::kSize, kChain = kStages + kDepth * kStage;
  static constexpr int kPrepare = kTeams * PrepareMemory<D>::kBytes;
  static constexpr int kBytes = kChain > kPrepare ? kChain : kPrepare;
};

/// How the two stages share the device.
struct Stages {
  unsigned char* records;  ///< [slots, HV] records
  unsigned* ready;         ///< [slots, HV]: 1 once the record is there; nullptr: all are
  unsigned chain_blocks;   ///< blocks beyond these prepare
  unsigned items;          ///< what those prepare, in the order of time if a chain waits for it
};

/// Where a block is in its ring of stages: which one, and how often it came round.
struct Ring {
  int stage = 0;
  unsigned round = 0;
  __device__ void next(int depth) {
    if (++stage == depth) stage = 0, ++round;
  }
};

/// Stores 16 bytes, or nothing. In one instruction: a branch between a product and its wait would serialise the
/// products.
__device__ inline void store_if(bool there, void* to, const uint4& x) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}\n" ::"l"(to),
               "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(static_cast<int>(there))
               : "memory");
}

/// The warp that fetches: the next chunk goes to the next stage as soon as that is free.
template <class In, int D>
__device__ void fetch_chunks(const Arguments& a, const Maps& maps, const Stages& stages, unsigned char* memory,
                             const Sequence& s, std::int64_t n, int head, int first) {
  using Shared = ChainShared<D>;
  const int thread = threadIdx.x;
  const std::uint32_t at = shared_address(memory), full = at + Shared::kFull, free = at + Shared::kFree,
                      tail = at + Shared::kTail;
  const unsigned place = static_cast<unsigned>(first_slot(a, n, kChunk)) * a.HV + head;
  const int chunks = static_cast<int>((s.length + kChunk - 1) / kChunk);
  Ring ring;
  for (int c = 0; c < chunks; ++c, ring.next(Shared::kDepth)) {
    const int count = static_cast<int>(min(static_cast<std::int64_t>(kChunk), s.length - std::int64_t{kChunk} * c));
    if (ring.round > 0) wait(free + 8 * ring.stage, (ring.round - 1) & 1);
    const std::uint32_t to = at + Shared::kStages + ring.stage * Shared::kStage, full_now = full + 8 * ring.stage;
    const std::uint32_t landed = count == kChunk ? full_now : tail;
    if (thread == 0) {
      arrive_and_expect(landed, Shared::kRecord + (count == kChunk ? Record::kBytes : 0));
      const int token = static_cast<int>(s.begin) + c * kChunk, batch = static_cast<int>(s.batch);
      for (int h = 0; h < D / 64; ++h) {
        load_tile(to + Shared::kKey + h * 8192, maps.k, 64 * h, a.key_head(head), token, batch, landed);
        load_tile(to + Shared::kQuery + h * 8192, maps.q, 64 * h, a.key_head(head), token, batch, landed);
      }
      load_tile(to + Shared::kValue, maps.v, first, head, token, batch, landed);
    }
    if (count < kChunk) {  // once a sequence
      wait(tail, 0);
      clear_rows<32>(memory + Shared::kStages + ring.stage * Shared::kStage, 2 * (D / 64) + 1, count, thread);
      if (thread == 0) arrive_and_expect(full_now, Record::kBytes);
    }
    if (thread != 0) arrive(full_now);  // each for the zeros it wrote
    if (thread == 0) {
      const unsigned now = place + static_cast<unsigned>(c) * a.HV;
      if (stages.ready) {
        unsigned there = 0;
        while (!there)
          asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(there) : "l"(stages.ready + now) : "memory");
        fence_global();
      }
      load_bytes(to + Shared::kRecord, stages.records + std::int64_t{now} * Record::kSize, Record::kBytes, full_now);
    }
    __syncwarp();
  }
}

/// One warpgroup's 64 rows of S along the chunks, on transposes, S [64 x d_k] being the left operand:
/// \f[ R^\top = V^\top B - (S K^\top) D_a - (S Q^\top) D_b, \quad Z^\top = R^\top + R^\top N^\top, \quad
///     O^\top = (S Q^\top) D_f + Z^\top P^\top, \quad S \leftarrow \gamma_C S + (Z^\top D_w) K \f]
/// R and N are sums of two 16-bit operands each, of whose four products the smallest is left out.
/// \tparam Lambda  whether D_b is there: only then R waits for S Q^T
/// \formula{F84}
template <class In, int D, bool Lambda>
__device__ void walk_chunks(const Arguments& a, unsigned char* memory, const Sequence& s, std::int64_t n, int head,
                            int first) {
  using Shared = ChainShared<D>;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4, matrix = lane / 8, r = lane % 8;
  const std::uint32_t at = shared_address(memory), full = at + Shared::kFull, free = at + Shared::kFree;
  const std::uint32_t turn = at + Shared::kOutput + warp * Shared::kWarpOutput;
  const unsigned char* const turned = memory + Shared::kOutput + warp * Shared::kWarpOutput;
  const int chunks = static_cast<int>((s.length + kChunk - 1) / kChunk);
  const std::int64_t slot = first_slot(a, n, kChunk), state = n * a.HV + head;
  const int channel = first + 16 * warp;  // of the warp's first row

  float S[D / 2];             // [64 x d_k] over the warpgroup
  std::uint32_t left[D / 4];  // S rounded: a left operand
#pragma unroll
  for (int e = 0; e < D / 2; ++e)
    S[e] = a.initial_state
               ? static_cast<const float*>(
                     a.initial_state)[a.state_index(state, channel + g + e / 2 % 2 * 8, e / 4 * 8 + 2 * t + e % 2)]
               : 0;
#pragma unroll
  for (int i = 0; i < D / 4; ++i) left[i] = pack<In>(S[2 * i], S[2 * i + 1]);

  // o^T of a chunk is turned round through shared memory, and leaves while the products of the next chunk run.
  In* o = const_cast<In*>(row<In>(a.o, s, lane / 2 - kChunk, head)) + channel + lane % 2 * 8;  // of the chunk before
  auto store_output = [&](int c) {
    const int left = static_cast<int>(min(static_cast<std::int64_t>(kChunk), s.length - std::int64_t{kChunk} * c));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = 16 * i + lane / 2;
      store_if(c >= 0 && token < left, o + 16 * i * a.o.stride_t,
               *reinterpret_cast<const uint4*>(turned + swizzled<32>(token, lane % 2)));
    }
    o += kChunk * a.o.stride_t;
    __syncwarp();
  };

  Ring ring;
  for (int c = 0; c < chunks; ++c, ring.next(Shared::kDepth)) {
    const int stage = ring.stage;
    const int here = Shared::kStages + stage * Shared::kStage;
    const std::uint32_t tiles = place_of(at + here);
    constexpr int kN = Shared::kRecord + Record::kTop, kBelow = Shared::kRecord + Record::kBottom,
                  kBelowRest = Shared::kRecord + Record::kBottomRest, kP = Shared::kRecord + Record::kP;
    const float* const factor =
        reinterpret_cast<const float*>(memory + here + Shared::kRecord + Record::kTokens) + 2 * t;
    auto of = [&](Factor f, int j) { return *reinterpret_cast<const float2*>(factor + f * kChunk + 8 * j); };
    wait(full + 8 * stage, ring.round & 1);

    // Asked for before the products are issued, so that nothing waits for shared memory after them.
    std::uint32_t V[16];  // V^T, packed as an operand
#pragma unroll
    for (int j = 0; j < 8; j += 2)
      load_matrices_transposed(
          reinterpret_cast<std::uint32_t(&)[4]>(V[2 * j]),
          at + here + Shared::kValue + swizzled<128>(8 * (j + matrix / 2) + r, 2 * warp + matrix % 2));
    float b[16], read_key[16];
    const std::uint32_t factors = at + here + Shared::kRecord + Record::kTokens + 8 * t;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      load_pair(b[2 * j], b[2 * j + 1], factors + 4 * kBeta * kChunk + 32 * j);
      load_pair(read_key[2 * j], read_key[2 * j + 1], factors + 4 * kReadKey * kChunk + 32 * j);
    }

    float X[32], O[32];  // S K^T and S Q^T [64 x 64 tokens]
    pin(left);
    begin_products();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      multiply<In>(X, left + 4 * k, rows_along_k(tiles, Shared::kKey + k / 4 * 8192 + k % 4 * 32), k > 0);
    commit_products();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      multiply<In>(O, left + 4 * k, rows_along_k(tiles, Shared::kQuery + k / 4 * 8192 + k % 4 * 32), k > 0);
    commit_products();
    store_output(c - 1);
    pin(V), pin(b), pin(read_key);
    wait_products<Lambda ? 0 : 1>();
    pin(X);
    if constexpr (Lambda) pin(O);

    float Z0[16], Z1[16];             // R, then Z, of tokens 0 .. 31 and 32 .. 63
    std::uint32_t R[16], R_rest[16];  // R = R + R_rest as operands
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float2 read_query{};
      if constexpr (Lambda) read_query = of(kReadQuery, j);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 v = unpack<In>(V[2 * j + h]);
        const int e = 4 * j + 2 * h;
        float low = b[2 * j] * v.x - read_key[2 * j] * X[e], high = b[2 * j + 1] * v.y - read_key[2 * j + 1] * X[e + 1];
        if constexpr (Lambda) low -= read_query.x * O[e], high -= read_query.y * O[e + 1];
        R[e / 2] = pack<In>(low, high);
        R_rest[e / 2] = rest<In>(R[e / 2], low, high);
        float* const z = j < 4 ? Z0 + e : Z1 + e - 16;
        z[0] = low, z[1] = high;
      }
    }
    pin(R), pin(R_rest), pin(Z0), pin(Z1);
    begin_products();
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      multiply<In>(Z0, R_rest + 4 * k, rows_along_k(tiles, kN + 32 * k));
      multiply<In>(Z0, R + 4 * k, rows_along_k(tiles, kN + 64 + 32 * k));
      multiply<In>(Z0, R + 4 * k, rows_along_k(tiles, kN + 32 * k));
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      multiply<In>(Z1, R_rest + 4 * k, rows_along_k(tiles, kBelow + 32 * k));
      multiply<In>(Z1, R + 4 * k, rows_along_k(tiles, kBelowRest + 32 * k));
      multiply<In>(Z1, R + 4 * k, rows_along_k(tiles, kBelow + 32 * k));
    }
    commit_products();
    const float gamma = factor[kFactors * kChunk - 2 * t];
#pragma unroll
    for (int e = 0; e < D / 2; ++e) S[e] *= gamma;
    pin(S);
    wait_products<1>();
    pin(O);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 output = of(kOutput, j);
#pragma unroll
      for (int h = 0; h < 2; ++h) O[4 * j + 2 * h] *= output.x, O[4 * j + 2 * h + 1] *= output.y;
    }
    pin(O);
    wait_products<0>();
    pin(Z0), pin(Z1);

    std::uint32_t solved[16], written[16];  // Z^T and Z^T D_w as operands
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 write = of(kWrite, j);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int e = 4 * j + 2 * h;
        const float* const z = j < 4 ? Z0 + e : Z1 + e - 16;
        solved[e / 2] = pack<In>(z[0], z[1]);
        written[e / 2] = pack<In>(write.x * z[0], write.y * z[1]);
      }
    }
    if (a.trace.Z)
#pragma unroll
      for (int e = 0; e < 32; ++e)
        static_cast<float*>(a.trace.Z)[(((slot + c) * a.HV + head) * kChunk + e / 4 * 8 + 2 * t + e % 2) * a.d_v +
                                       channel + g + e / 2 % 2 * 8] = e < 16 ? Z0[e % 16] : Z1[e % 16];
    pin(S), pin(solved), pin(written), pin(O);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      multiply_along_n<In>(S, written + 4 * k, rows_along_n(tiles, Shared::kKey + 2048 * k, 8192));
    commit_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply<In>(O, solved + 4 * k, rows_along_k(tiles, kP + 32 * k));
    commit_products();
    wait_products<1>();
    pin(S);
#pragma unroll
    for (int i = 0; i < D / 4; ++i) left[i] = pack<In>(S[2 * i], S[2 * i + 1]);
    pin(left);
    wait_products<0>();
    pin(O);
    __syncwarp();
    if (lane == 0) arrive(free + 8 * stage);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      std::uint32_t out[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) out[i] = pack<In>(O[4 * j + 2 * i], O[4 * j + 2 * i + 1]);
      store_matrices_transposed(turn + swizzled<32>(8 * (j + matrix / 2) + r, matrix % 2), out);
    }
    __syncwarp();
    if (a.trace.S)
#pragma unroll
      for (int e = 0; e < D / 2; ++e)
        static_cast<float*>(a.trace.S)[(((slot + c) * a.HV + head) * a.d_v + channel + g + e / 2 % 2 * 8) * D +
                                       e / 4 * 8 + 2 * t + e % 2] = S[e];
  }
  store_output(chunks - 1);
  if (a.final_state)
#pragma unroll
    for (int e = 0; e < D / 2; ++e)
      static_cast<float*>(a.final_state)[a.state_index(state, channel + g + e / 2 % 2 * 8, e / 4 * 8 + 2 * t + e % 2)] =
          S[e];
}

/// One block is one multiprocessor's: a warp that fetches and a warpgroup that owns 64 rows of S, or four teams that
/// prepare.
template <class In, int D, bool Lambda, bool Trace>
__global__ void __launch_bounds__(512, 1)
    chain(const Arguments a, const __grid_constant__ Maps maps, const Stages stages) {
  using Shared = ChainShared<D>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int group = threadIdx.x / 128;
  if (blockIdx.x >= stages.chain_blocks) {
    const unsigned blocks = gridDim.x - stages.chain_blocks, block = blockIdx.x - stages.chain_blocks;
    prepare<In, D, Trace>(a, maps, memory + group * PrepareMemory<D>::kBytes, 1 + group,
                          {stages.ready != nullptr, group * blocks + block, Shared::kTeams * blocks, stages.items},
                          stages.records, stages.ready);
    return;
  }
  const std::uint32_t at = shared_address(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shared::kDepth; ++i)
      init_barrier(at + Shared::kFull + 8 * i, 32), init_barrier(at + Shared::kFree + 8 * i, 4);
    init_barrier(at + Shared::kTail, 1);
    fence_shared();
  }
  __syncthreads();
  const unsigned slices = static_cast<unsigned>(a.d_v / 64), lane = blockIdx.x / slices;
  const std::int64_t n = lane / a.HV;
  const int head = static_cast<int>(lane % a.HV), first = static_cast<int>(blockIdx.x % slices) * 64;
  const Sequence s = a.sequence(n);
  if (group == 1) {
    take_registers<240>();
    walk_chunks<In, D, Lambda>(a, memory, s, n, head, first);
  } else {
    give_registers<40>();
    if (threadIdx.x < 32) fetch_chunks<In, D>(a, maps, stages, memory, s, n, head, first);
  }
}

// ---------------------------------------------------------------- launching

/// The tensor [B, T, heads, d] in boxes of 64 channels x 64 tokens of a head.
cudaError_t describe(CUtensorMap& map, const Rows& x, deltaref_dtype dtype, std::int64_t B, std::int64_t T, int heads,
                     int d) {
  static const auto encode = [] {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult found{};
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(f) : nullptr;
  }();
  if (!encode) return cudaErrorNotSupported;
  const auto extent = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const auto stride = [&](std::int64_t elements, std::int64_t n) { return extent(n > 1 ? 2 * elements : 2 * d); };
  const cuuint64_t sizes[] = {extent(d), extent(heads), extent(T), extent(B)};
  const cuuint64_t strides[] = {stride(x.stride_h, heads), stride(x.stride_t, T), stride(x.stride_b, B)};
  const cuuint32_t box[] = {64, 1, 64, 1}, steps[] = {1, 1, 1, 1};
  const CUresult result =
      encode(&map, dtype == DELTAREF_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
             const_cast<void*>(x.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <class In, int D, bool Lambda, bool Trace>
cudaError_t launch(const Arguments& a, const Maps& maps, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  const auto kernel = chain<In, D, Lambda, Trace>;
  constexpr int kBytes = ChainShared<D>::kBytes;
  const unsigned all = static_cast<unsigned>(plan.slots * a.HV), lanes = static_cast<unsigned>(a.N * a.HV);
  const unsigned blocks = lanes * static_cast<unsigned>(a.d_v / 64);
  Stages stages{.records = static_cast<unsigned char*>(a.workspace), .ready = nullptr, .chain_blocks = 0, .items = all};
  cudaError_t error = allow_all_shared_memory(kernel);
  if (error != cudaSuccess) return error;
  unsigned beside = 0;
  if (plan.overlap == DELTAREF_BEFORE) {
    kernel<<<static_cast<unsigned>(plan.producers), 512, kBytes, stream>>>(a, maps, stages);
    error = cudaGetLastError();
  } else {
    stages.ready = reinterpret_cast<unsigned*>(stages.records + std::int64_t{all} * Record::kSize);
    stages.items = static_cast<unsigned>((a.T + kChunk - 1) / kChunk) * lanes;
    beside = static_cast<unsigned>(plan.producers);
    error = cudaMemsetAsync(stages.ready, 0, std::size_t{all} * 4, stream);
  }
  if (error != cudaSuccess) return error;
  stages.chain_blocks = blocks;
  kernel<<<blocks + beside, 512, kBytes, stream>>>(a, maps, stages);
  return cudaGetLastError();
}

template <class In, int D>
cudaError_t launch(const Arguments& a, const Maps& maps, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  if (a.trace.gamma || a.trace.L_g || a.trace.inverse) return launch<In, D, true, true>(a, maps, plan, stream);
  return a.lambda.data ? launch<In, D, true, false>(a, maps, plan, stream)
                       : launch<In, D, false, false>(a, maps, plan, stream);
}

}  // namespace

cudaError_t launch_v5(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  Maps maps{};
  const std::int64_t B = a.offsets ? 1 : a.N;
  if (a.T > 0) {
    cudaError_t error = describe(maps.q, a.q, dtype, B, a.T, a.H, a.d_k);
    if (error == cudaSuccess) error = describe(maps.k, a.k, dtype, B, a.T, a.H, a.d_k);
    if (error == cudaSuccess) error = describe(maps.v, a.v, dtype, B, a.T, a.HV, a.d_v);
    if (error != cudaSuccess) return error;
  }
  if (dtype == DELTAREF_BF16)
    return a.d_k == 64 ? launch<__nv_bfloat16, 64>(a, maps, plan, stream)
                       : launch<__nv_bfloat16, 128>(a, maps, plan, stream);
  return a.d_k == 64 ? launch<__half, 64>(a, maps, plan, stream) : launch<__half, 128>(a, maps, plan, stream);
}

}  // namespace delta::gpu
