// SPDX-License-Identifier: Apache-2.0
// The chain of v7: 64 rows of S a warpgroup, in registers, and the errors solved for on the way.
#pragma once
#include <cstddef>

#include "gpu/kernels/v7_block.cuh"

namespace delta::gpu {

/// K and Q of chunk n, by one warp, when all are through with chunk n - 3. What a team wrote there itself it fenced
/// before `ready`.
template <int D> __device__ void load_keys(const Maps& maps, unsigned char* block, unsigned n) {
  using Memory = AloneShared<D>;
  const Chunk& x = Memory::chunk(block, n);
  if (x.left == 0) return;
  const std::uint32_t at = shared_address(block), stage = n % Memory::kStages,
                      full = at + Memory::kFull + 8 * (n % Memory::kFulls);
  const std::uint32_t to = at + Memory::kKey + stage * Memory::kStage;
  expect_bytes(full, Memory::kStage);
#pragma unroll 1
  for (int h = 0; h < D / 64; ++h) {
    load_tile(to + h * kTileBytes, maps.k, 64 * h, x.key_head, x.token, x.batch, full);
    load_tile(to + Memory::kQuery + h * kTileBytes, maps.q, 64 * h, x.key_head, x.token, x.batch, full);
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(full);
  __syncwarp();
}
/// A warpgroup's V of chunk n, by one warp, when the o that lies there has been stored.
template <int D>
__device__ void load_values(const Maps& maps, const Shape& shape, unsigned char* block, int group, unsigned n) {
  using Memory = AloneShared<D>;
  const Chunk& x = Memory::chunk(block, n);
  if (x.left == 0) return;
  const std::uint32_t at = shared_address(block) + 16 * static_cast<unsigned>(group), place = n % Memory::kTeams;
  const std::uint32_t full = at + Memory::kValueFull + 8 * place;
  if (n >= Memory::kTeams) wait(at + Memory::kValueFree + 8 * place, (n / Memory::kTeams - 1) & 1);
  fence_shared();  // o was written by ordinary stores, of all four warps
  expect_bytes(full, kTileBytes);
  load_tile(shared_address(block) + Memory::value(shape.warpgroups, group, n), maps.v, 64 * group, x.head, x.token,
            x.batch, full);
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(full);
  __syncwarp();
}

/// One warpgroup's 64 rows of S along the chunks, on transposes, S [64 x d_k] being the left operand:
/// \f[ R^\top = V^\top - (S K^\top + S Q^\top \mathrm{diag}(\lambda)) D_a, \quad E^\top = R^\top A^\top, \quad
///     O^\top = (S Q^\top) D_f + E^\top P^\top, \quad S \leftarrow \gamma_C S + (E^\top D_w) K. \f]
/// A and R are pairs of bf16, and E is three products. Accumulators, rounded and packed, are the left operand of the
/// next product. What is fetched from shared memory behind a product whose left operand is in registers waits for it;
/// so what a step needs is asked for before the products of the last one, where registers allow. \param group  the
/// warpgroup's number among those that carry S \formula{F84}
template <class In, int D, bool Trace>
__device__ void carry_alone(const Arguments& a, const Maps& maps, const Shape& shape, unsigned char* block, int group) {
  using Memory = AloneShared<D>;
  using bf16 = __nv_bfloat16;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32 % 4, 0), lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4, matrix = lane / 8, r = lane % 8;
  const std::uint32_t at = shared_address(block);
  const std::uint32_t of_values = at + 16 * static_cast<unsigned>(group);
  const int channel = 64 * group + 16 * warp;  // of the warp's first row
  const unsigned warps = 4 * static_cast<unsigned>(shape.warpgroups);
  if (warp == 0) {
    if (group == 0)
      for (unsigned n = 0; n < Memory::kStages; ++n) load_keys<D>(maps, block, n);
    load_values<D>(maps, shape, block, group, 0);
  }

  unsigned n = 0;  // the chunk's number
  for (unsigned number = blockIdx.x; number < shape.parts; number += shape.clusters) {
    const Part part = find_part(a, shape, number);
    const int first_row = channel + g, column = 2 * t;  // of the thread's first number
    float S[D / 2];                                     // [64 x d_k] over the warpgroup
    std::uint32_t left[D / 4];                          // S rounded: a left operand
    if (part.from.data) {
      read_state(S, part.from, first_row, column);
    } else {
#pragma unroll
      for (int e = 0; e < D / 2; ++e) S[e] = 0;
    }
#pragma unroll
    for (int i = 0; i < D / 4; ++i) left[i] = pack<In>(S[2 * i], S[2 * i + 1]);
    const Sequence tokens{part.batch, part.begin, part.length, 0};
    In* o = const_cast<In*>(row<In>(a.o, tokens, lane / 2, part.head)) + channel + lane % 2 * 8;
    const std::int64_t step = 16 * a.o.stride_t;

    for (int c = 0; c < part.chunks; ++c, ++n) {
      const unsigned stage = n % Memory::kStages, place = n % Memory::kTeams;
      const std::uint32_t keys = place_of(at + Memory::kKey + stage * Memory::kStage),
                          inverse = place_of(at + Memory::kInverse + place * 2 * kTileBytes),
                          scores = place_of(at + Memory::kScores + stage * kTileBytes);
      const int value = Memory::value(shape.warpgroups, group, n), count = part.length - kChunk * c;
      // The warp's 16 channels of V, later of o: 32 bytes of each row of the tile.
      const auto of_warp = [&](int token, int half) { return value + swizzled<128>(token, 2 * warp + half); };
      const std::uint32_t factors = shared_address(&Memory::factors(block, n)) + static_cast<unsigned>(8 * t);
      Memory::wait_full(at, n);
      wait(of_values + Memory::kValueFull + 8 * place, n / Memory::kTeams & 1);
      if (count < kChunk) {  // beyond the end anything may lie: the team clears K and Q there, each warp its part of V
        wait(at + Memory::kReady + 8 * place, n / Memory::kTeams & 1);
        for (int i = count + lane / 2; i < kChunk; i += 16)
          *reinterpret_cast<uint4*>(block + of_warp(i, lane % 2)) = make_uint4(0, 0, 0, 0);
        __syncwarp();
      }
      float E[32], O[32];  // [64 x 64 tokens]: S K^T, later E^T; S Q^T, later O^T
      pin(left);
      begin_products();
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
        multiply<In>(E, left + 4 * k, rows_along_k(keys, k / 4 * kTileBytes + k % 4 * 32), k > 0);
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
        multiply<In>(O, left + 4 * k, rows_along_k(keys, Memory::kQuery + k / 4 * kTileBytes + k % 4 * 32), k > 0);
      commit_products();
      std::uint32_t V[16];
#pragma unroll
      for (int m = 0; m < 4; ++m)
        load_matrices_transposed(reinterpret_cast<std::uint32_t(&)[4]>(V[4 * m]),
                                 at + static_cast<unsigned>(of_warp(16 * m + 8 * (matrix / 2) + r, matrix % 2)));
      wait_products<0>();
      pin(E), pin(O), pin(V);

      if (warp == 0) load_values<D>(maps, shape, block, group, n + 1);
      wait(at + Memory::kReady + 8 * place, n / Memory::kTeams & 1);
      if (a.lambda.data)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          float l0, l1;
          load_pair(l0, l1, factors + offsetof(TokenFactors, lambda) + 32 * j);
          E[4 * j] += l0 * O[4 * j], E[4 * j + 1] += l1 * O[4 * j + 1];
          E[4 * j + 2] += l0 * O[4 * j + 2], E[4 * j + 3] += l1 * O[4 * j + 3];
        }
      float output[16], gamma, unused;
#pragma unroll
      for (int j = 0; j < 8; ++j)
        load_pair(output[2 * j], output[2 * j + 1], factors + offsetof(TokenFactors, output) + 32 * j);
      load_pair(gamma, unused, factors - 8 * t + offsetof(TokenFactors, gamma));
      std::uint32_t big[16], small[16];  // R^T
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float f0, f1;
        load_pair(f0, f1, factors + offsetof(TokenFactors, read) + 32 * j);
#pragma unroll
        for (int p = 2 * j; p < 2 * j + 2; ++p) {
          const float2 v = unpack<In>(V[p]);
          const float x = v.x + f0 * E[2 * p], y = v.y + f1 * E[2 * p + 1];
          big[p] = pack<bf16>(x, y);
          const float2 rounded = unpack<bf16>(big[p]);
          small[p] = pack<bf16>(x - rounded.x, y - rounded.y);
        }
      }
      pin(big), pin(small), pin(output);
      begin_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const std::uint64_t A = rows_along_k(inverse, 32 * k);
        multiply<bf16>(E, small + 4 * k, A, k > 0);
        multiply<bf16>(E, big + 4 * k, rows_along_k(inverse, kTileBytes + 32 * k));
        multiply<bf16>(E, big + 4 * k, A);
      }
      commit_products();
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        O[4 * j] *= output[2 * j], O[4 * j + 1] *= output[2 * j + 1];
        O[4 * j + 2] *= output[2 * j], O[4 * j + 3] *= output[2 * j + 1];
      }
#pragma unroll
      for (int e = 0; e < D / 2; ++e) S[e] *= gamma;
      float write[16];
#pragma unroll
      for (int j = 0; j < 8; ++j)
        load_pair(write[2 * j], write[2 * j + 1], factors + offsetof(TokenFactors, write) + 32 * j);
      pin(O), pin(S);
      wait_products<0>();
      pin(E), pin(write);
      if (lane == 0) arrive(at + Memory::kUsed + 8 * place);

      std::uint32_t errors[16], written[16];  // E^T and E^T D_w, left operands
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        errors[i] = pack<In>(E[2 * i], E[2 * i + 1]);
        written[i] = pack<In>(write[i / 2 * 2] * E[2 * i], write[i / 2 * 2 + 1] * E[2 * i + 1]);
      }
      if (Trace && a.trace.Z)
#pragma unroll
        for (int e = 0; e < 32; ++e)
          static_cast<float*>(
              a.trace.Z)[(part.place(a, c) * kChunk + e / 4 * 8 + 2 * t + e % 2) * a.d_v + first_row + e / 2 % 2 * 8] =
              E[e];
      pin(errors), pin(written);
      begin_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply_along_n<In>(S, written + 4 * k, rows_along_n(keys, 2048 * k, kTileBytes));
      commit_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply<In>(O, errors + 4 * k, rows_along_k(scores, 32 * k));
      commit_products();
      wait_products<1>();
      pin(S);
#pragma unroll
      for (int i = 0; i < D / 4; ++i) left[i] = pack<In>(S[2 * i], S[2 * i + 1]);
      pin(left);
      wait_products<0>();
      pin(O);
      const bool last = is_last(at + Memory::kFinished + 4 * stage, warps);
      // o^T is turned round in the place of V, each warp its channels.
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        std::uint32_t out[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i] = pack<In>(O[4 * j + 2 * i], O[4 * j + 2 * i + 1]);
        store_matrices_transposed(at + static_cast<unsigned>(of_warp(8 * (j + matrix / 2) + r, matrix % 2)), out);
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; ++i, o += step) {
        const int token = 16 * i + lane / 2;
        store_if(token < count, o, *reinterpret_cast<const uint4*>(block + of_warp(token, lane % 2)));
      }
      __syncwarp();
      if (lane == 0) arrive(of_values + Memory::kValueFree + 8 * place);
      if (last) load_keys<D>(maps, block, n + Memory::kStages);
      if (Trace && a.trace.S)
#pragma unroll
        for (int e = 0; e < D / 2; ++e)
          static_cast<float*>(
              a.trace.S)[(part.place(a, c) * a.d_v + first_row + e / 2 % 2 * 8) * D + e / 4 * 8 + 2 * t + e % 2] = S[e];
    }
    if (part.to.data) write_state(S, part.to, first_row, column);
  }
}

}  // namespace delta::gpu
