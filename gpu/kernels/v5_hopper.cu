// SPDX-License-Identifier: Apache-2.0
// v5: the schedule of v4 with the instructions of Hopper.
//
// Change      a warpgroup's products (wgmma) for warp-level mma, and the copy engine (TMA) for warps that fetch. 64 rows of
//             S are the accumulators of one warpgroup, fp32, from the first chunk to the last; rounded and packed in
//             place they are the left operand of S [K; Q]^T, as R and Z are of the products after it. Where heads leave
//             multiprocessors idle, those prepare the next chunks while the chain walks the first.
// Prediction  a chunk of 128 rows needs 2560 cycles of the tensor cores where everything overlaps, 1.5 us; with the waits
//             between its five products 1.75 us, where v4 takes 2.7 with 64 rows. (1, 8192, 64) from 0.64 to 0.23 ms.
// Gained      see NOTES.md, which takes its figures from evidence/.
#include "gpu/kernels/launch.hpp"
#include "gpu/kernels/v5_prepare.cuh"

namespace delta::gpu {
namespace {

constexpr int kStages = 3;

/// Shared memory of a block of W warpgroups with 64 rows of S each: the stages, each K, Q, V of the rows and the record,
/// then what a warp needs to turn o^T round, then the barriers.
template <int D, int W> struct ChainShared {
  static constexpr int kKeys = D / 64 * 8192, kKey = 0, kQuery = kKeys, kValue = 2 * kKeys;
  static constexpr int kRecord = kValue + W * 8192, kStage = kRecord + Record::kSize;
  static constexpr int kOutput = kStages * kStage, kWarpOutput = kChunk * 32;
  static constexpr int kBarriers = kOutput + 4 * W * kWarpOutput;
  static constexpr int kTeams = W + 1;  ///< teams of a block that prepares
  static constexpr int kChain = kBarriers + 64, kPrepare = kTeams * PrepareMemory<D>::kBytes;
  static constexpr int kBytes = kChain > kPrepare ? kChain : kPrepare;
};

/// What the two stages share besides the problem.
struct Stages {
  unsigned char* records;  ///< [slots, HV] records
  unsigned* ready;         ///< [slots, HV]: 1 once the record is there; nullptr: all are
  unsigned chain_blocks;   ///< blocks beyond these prepare
  unsigned items;          ///< chunks to prepare, in the order of time
};

/// Stores 16 bytes, or nothing. In one instruction: a branch between a product and its wait would serialise the products.
__device__ inline void store_if(bool there, void* to, const uint4& x) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}\n" ::"l"(to),
               "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(static_cast<int>(there))
               : "memory");
}

/// The warp that fetches: chunk c goes to stage c mod 3 as soon as that is free.
template <class In, int D, int W>
__device__ void fetch_chunks(const Arguments& a, const Maps& maps, const Stages& stages, unsigned char* memory,
                             const Sequence& s, std::int64_t n, int head, int first) {
  using Shared = ChainShared<D, W>;
  const std::uint32_t at = shared_address(memory), full = at + Shared::kBarriers, free = full + 8 * kStages,
                      tail = free + 8 * kStages;
  const int thread = threadIdx.x;
  const std::int64_t chunks = (s.length + kChunk - 1) / kChunk, slot = first_slot(a, n, kChunk);
  for (std::int64_t c = 0; c < chunks; ++c) {
    const int stage = static_cast<int>(c % kStages), count = static_cast<int>(min(static_cast<std::int64_t>(kChunk), s.length - c * kChunk));
    if (c >= kStages) wait(free + 8 * stage, (c / kStages - 1) & 1);
    const std::uint32_t to = at + stage * Shared::kStage, landed = count == kChunk ? full + 8 * stage : tail;
    const std::int64_t slot_head = (slot + c) * a.HV + head;
    if (thread == 0) {
      arrive_and_expect(landed, Shared::kRecord + (count == kChunk ? Record::kBytes : 0));
      const int token = static_cast<int>(s.begin + c * kChunk), batch = static_cast<int>(s.batch);
      for (int h = 0; h < D / 64; ++h) {
        load_tile(to + Shared::kKey + h * 8192, maps.k, 64 * h, a.key_head(head), token, batch, landed);
        load_tile(to + Shared::kQuery + h * 8192, maps.q, 64 * h, a.key_head(head), token, batch, landed);
      }
      for (int w = 0; w < W; ++w) load_tile(to + Shared::kValue + w * 8192, maps.v, first + 64 * w, head, token, batch, landed);
    }
    if (count < kChunk) {  // once a sequence
      wait(tail, 0);
      clear_rows<32>(memory + stage * Shared::kStage, 2 * (D / 64) + W, count, thread);
      __syncwarp();
      if (thread == 0) arrive_and_expect(full + 8 * stage, Record::kBytes);
    }
    if (thread == 0) {
      if (stages.ready) {
        unsigned there = 0;
        while (!there)
          asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(there) : "l"(stages.ready + slot_head) : "memory");
        fence_global();
      }
      load_bytes(to + Shared::kRecord, stages.records + slot_head * Record::kSize, Record::kBytes, full + 8 * stage);
    }
    __syncwarp();
  }
}

/// Two warpgroups that multiply at the same time also wait at the same time. So they take turns: one issues the products
/// of a chunk with the state only after the other has.
struct Turns {
  int mine, other;
  __device__ explicit Turns(int group) : mine(8 + group), other(8 + 1 - group) {
    if (group == 1) give_on();
  }
  __device__ void wait_for_mine() const { asm volatile("bar.sync %0, 256;\n" ::"r"(mine) : "memory"); }
  __device__ void give_on() const { asm volatile("bar.arrive %0, 256;\n" ::"r"(other) : "memory"); }
};

/// One warpgroup's 64 rows of S along the chunks, on transposes, S [64 x d_k] being the left operand:
/// \f[ R^\top = V^\top B - (S K^\top) D_a - (S Q^\top) D_b, \quad Z^\top = R^\top + R^\top N^\top, \quad
///     O^\top = (S Q^\top) D_f + Z^\top P^\top, \quad S \leftarrow \gamma_C S + (Z^\top D_w) K \f]
/// R and N are sums of two 16-bit operands each, of whose four products the smallest is left out.
/// \tparam Lambda  whether D_b is there: only then R waits for S Q^T
/// \formula{F84}
template <class In, int D, int W, bool Lambda>
__device__ void walk_chunks(const Arguments& a, unsigned char* memory, const Sequence& s, std::int64_t n, int head,
                            int first) {
  using Shared = ChainShared<D, W>;
  const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4, matrix = lane / 8, r = lane % 8;
  const std::uint32_t at = shared_address(memory), full = at + Shared::kBarriers, free = full + 8 * kStages;
  const std::uint32_t turn = at + Shared::kOutput + (4 * group + warp) * Shared::kWarpOutput;
  const unsigned char* const turned = memory + Shared::kOutput + (4 * group + warp) * Shared::kWarpOutput;
  const std::int64_t chunks = (s.length + kChunk - 1) / kChunk, slot = first_slot(a, n, kChunk);
  const std::int64_t state = n * a.HV + head;
  const int channel = first + 64 * group + 16 * warp;  // of the warp's first row
  const Turns turns(W == 2 ? group : 0);

  float S[D / 2];          // [64 x d_k] over the warpgroup
  std::uint32_t left[D / 4];  // S rounded: a left operand
#pragma unroll
  for (int e = 0; e < D / 2; ++e)
    S[e] = a.initial_state ? static_cast<const float*>(a.initial_state)[a.state_index(
                                 state, channel + g + e / 2 % 2 * 8, e / 4 * 8 + 2 * t + e % 2)]
                           : 0;
#pragma unroll
  for (int i = 0; i < D / 4; ++i) left[i] = pack<In>(S[2 * i], S[2 * i + 1]);

  // o^T of a chunk is turned round through shared memory, and leaves while the products of the next chunk run.
  In* o = const_cast<In*>(row<In>(a.o, s, lane / 2 - kChunk, head)) + channel + lane % 2 * 8;  // of the chunk before
  auto store_output = [&](std::int64_t c) {
    const int left = static_cast<int>(min(static_cast<std::int64_t>(kChunk), s.length - c * kChunk));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = 16 * i + lane / 2;
      store_if(c >= 0 && token < left, o + 16 * i * a.o.stride_t,
               *reinterpret_cast<const uint4*>(turned + swizzled<32>(token, lane % 2)));
    }
    o += kChunk * a.o.stride_t;
    __syncwarp();
  };

  for (std::int64_t c = 0; c < chunks; ++c) {
    const int stage = static_cast<int>(c % kStages);
    const std::uint32_t tiles = place_of(at + stage * Shared::kStage);
    constexpr int kN = Shared::kRecord + Record::kTop, kBelow = Shared::kRecord + Record::kBottom,
                  kBelowRest = Shared::kRecord + Record::kBottomRest, kP = Shared::kRecord + Record::kP;
    const float* const factor =
        reinterpret_cast<const float*>(memory + stage * Shared::kStage + Shared::kRecord + Record::kTokens) + 2 * t;
    auto of = [&](Factor f, int j) { return *reinterpret_cast<const float2*>(factor + f * kChunk + 8 * j); };
    wait(full + 8 * stage, (c / kStages) & 1);

    // Asked for before the products are issued, so that nothing waits for shared memory after them.
    std::uint32_t V[16];  // V^T, packed as an operand
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      std::uint32_t v[4];
      load_matrices_transposed(v, at + stage * Shared::kStage + Shared::kValue + group * 8192 +
                                      swizzled<128>(8 * (j + matrix / 2) + r, 2 * warp + matrix % 2));
#pragma unroll
      for (int i = 0; i < 4; ++i) V[2 * j + i] = v[i];
    }
    float b[16], read_key[16];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 x = of(kBeta, j), y = of(kReadKey, j);
      b[2 * j] = x.x, b[2 * j + 1] = x.y, read_key[2 * j] = y.x, read_key[2 * j + 1] = y.y;
    }
    pin(V), pin(b), pin(read_key);

    float X[32], O[32];  // S K^T and S Q^T [64 x 64 tokens]
    pin(left);
    if constexpr (W == 2) turns.wait_for_mine();
    begin_products();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      multiply<In>(X, left + 4 * k, rows_along_k(tiles, Shared::kKey + k / 4 * 8192 + k % 4 * 32), k > 0);
    commit_products();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      multiply<In>(O, left + 4 * k, rows_along_k(tiles, Shared::kQuery + k / 4 * 8192 + k % 4 * 32), k > 0);
    commit_products();
    if constexpr (W == 2) turns.give_on();
    store_output(c - 1);
    wait_products<Lambda ? 0 : 1>();
    pin(X);
    if constexpr (Lambda) pin(O);

    float Z0[16], Z1[16];            // R, then Z, of tokens 0 .. 31 and 32 .. 63
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
        static_cast<float*>(a.trace.Z)[(((slot + c) * a.HV + head) * kChunk + e / 4 * 8 + 2 * t + e % 2) * a.d_v + channel + g +
                                       e / 2 % 2 * 8] = e < 16 ? Z0[e % 16] : Z1[e % 16];
    pin(S), pin(solved), pin(written), pin(O);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_along_n<In>(S, written + 4 * k, rows_along_n(tiles, Shared::kKey + 2048 * k, 8192));
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
        static_cast<float*>(a.trace.S)[(((slot + c) * a.HV + head) * a.d_v + channel + g + e / 2 % 2 * 8) * D + e / 4 * 8 +
                                       2 * t + e % 2] = S[e];
  }
  store_output(chunks - 1);
  if (a.final_state)
#pragma unroll
    for (int e = 0; e < D / 2; ++e)
      static_cast<float*>(
          a.final_state)[a.state_index(state, channel + g + e / 2 % 2 * 8, e / 4 * 8 + 2 * t + e % 2)] = S[e];
}

/// One block is one multiprocessor's: a fetching warpgroup (of which one warp works) and W that own 64 rows of S each; or
/// W + 1 teams that prepare.
template <class In, int D, int W, bool Lambda>
__global__ void __launch_bounds__(128 * (W + 1), 1)
    chain(const Arguments a, const __grid_constant__ Maps maps, const Stages stages) {
  using Shared = ChainShared<D, W>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int group = threadIdx.x / 128;
  if (blockIdx.x >= stages.chain_blocks) {
    const unsigned blocks = gridDim.x - stages.chain_blocks, first = group * blocks + blockIdx.x - stages.chain_blocks;
    prepare<In, D, false>(a, maps, memory + group * PrepareMemory<D>::kBytes, group,
                   {first, blocks * Shared::kTeams, stages.items, true}, stages.records, stages.ready);
    return;
  }
  const int slices = a.d_v / (64 * W);
  const std::int64_t state = blockIdx.x / slices, n = state / a.HV;
  const int head = static_cast<int>(state % a.HV), first = static_cast<int>(blockIdx.x % slices) * 64 * W;
  const Sequence s = a.sequence(n);
  if (threadIdx.x == 0) {
    const std::uint32_t full = shared_address(memory) + Shared::kBarriers;
    for (int i = 0; i < kStages; ++i) init_barrier(full + 8 * i, 1), init_barrier(full + 8 * (kStages + i), 4 * W);
    init_barrier(full + 8 * 2 * kStages, 1);
    fence_shared();
  }
  __syncthreads();
  if (group == 0) {
    if constexpr (W == 2) give_registers<40>();
    if (threadIdx.x < 32) fetch_chunks<In, D, W>(a, maps, stages, memory, s, n, head, first);
  } else {
    if constexpr (W == 2) take_registers<232>();
    walk_chunks<In, D, W, Lambda>(a, memory, s, n, head, first);
  }
}

template <class In, int D, bool Trace>
__global__ void __launch_bounds__(512, 1)
    prepare_all(const Arguments a, const __grid_constant__ Maps maps, unsigned char* records, unsigned items) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const int team = threadIdx.x / 128;
  prepare<In, D, Trace>(a, maps, memory + team * PrepareMemory<D>::kBytes, team,
                 {team * gridDim.x + blockIdx.x, 4 * gridDim.x, items, false}, records, nullptr);
}

// ---------------------------------------------------------------- launching

/// The tensor [B, T, heads, d] in boxes of 64 channels x 64 tokens of a head.
cudaError_t describe(CUtensorMap& map, const Rows& x, deltaref_dtype dtype, std::int64_t B, std::int64_t T, int heads, int d) {
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

template <class In, int D, int W, bool Lambda>
cudaError_t launch(const Arguments& a, const Maps& maps, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  using Shared = ChainShared<D, W>;
  const std::int64_t all = plan.slots * a.HV, lanes = a.N * a.HV;
  Stages stages{.records = static_cast<unsigned char*>(a.workspace), .ready = nullptr,
                .chain_blocks = static_cast<unsigned>(lanes * (a.d_v / (64 * W))), .items = 0};
  cudaError_t error = allow_all_shared_memory(chain<In, D, W, Lambda>);
  if (error != cudaSuccess) return error;
  if (plan.producers > 0) {
    stages.ready = reinterpret_cast<unsigned*>(stages.records + all * Record::kSize);
    stages.items = static_cast<unsigned>((a.T + kChunk - 1) / kChunk * lanes);
    error = cudaMemsetAsync(stages.ready, 0, static_cast<std::size_t>(all) * 4, stream);
  } else {
    constexpr int shared = 4 * PrepareMemory<D>::kBytes;
    const auto prepare = a.trace.gamma || a.trace.L_g || a.trace.inverse ? prepare_all<In, D, true> : prepare_all<In, D, false>;
    error = allow_all_shared_memory(prepare);
    if (error != cudaSuccess) return error;
    const std::int64_t blocks = min(all, static_cast<std::int64_t>(plan.multiprocessors));
    prepare<<<static_cast<unsigned>(blocks), 512, shared, stream>>>(a, maps, stages.records,
                                                                               static_cast<unsigned>(all));
    error = cudaGetLastError();
  }
  if (error != cudaSuccess) return error;
  chain<In, D, W, Lambda><<<stages.chain_blocks + static_cast<unsigned>(plan.producers), 128 * (W + 1), Shared::kBytes, stream>>>(
      a, maps, stages);
  return cudaGetLastError();
}

template <class In, int D>
cudaError_t launch(const Arguments& a, const Maps& maps, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  if (plan.rows == 64)
    return a.lambda.data ? launch<In, D, 1, true>(a, maps, plan, stream) : launch<In, D, 1, false>(a, maps, plan, stream);
  return a.lambda.data ? launch<In, D, 2, true>(a, maps, plan, stream) : launch<In, D, 2, false>(a, maps, plan, stream);
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
    return a.d_k == 64 ? launch<__nv_bfloat16, 64>(a, maps, plan, stream) : launch<__nv_bfloat16, 128>(a, maps, plan, stream);
  return a.d_k == 64 ? launch<__half, 64>(a, maps, plan, stream) : launch<__half, 128>(a, maps, plan, stream);
}

}  // namespace delta::gpu
