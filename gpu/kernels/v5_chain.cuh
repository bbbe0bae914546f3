// SPDX-License-Identifier: Apache-2.0
// The chain of v5: 64 rows of S a warpgroup, in registers from the first chunk of a sequence to the last.
#pragma once
#include <cstddef>

#include "gpu/kernels/v5_cluster.cuh"

namespace delta::gpu {

/// The warp that keeps the stages full.
template <class In, int D>
__device__ void fill_stages(const Arguments& a, const Maps& maps, const Shape& shape, unsigned char* memory,
                            unsigned cluster, int first) {
  using Memory = ChainShared<D>;
  using Producer = TeamShared<D>;
  const int lane = threadIdx.x % 32, values = shape.warpgroups * kTileBytes;
  const std::uint32_t at = shared_address(memory), tail = at + Memory::kTail;
  Ring ring;
  Preparer by;
  int steps = 0;
  for (Walk x(a, shape, cluster); x.step(steps); steps = 1, ring.next(shape.depth), by.next(shape)) {
    const std::uint32_t full = at + Memory::kFull + 8 * ring.stage, sent = at + Memory::kSent + 8 * ring.stage;
    const int offset = Memory::stages(shape.warpgroups) + ring.stage * Memory::stage(shape.warpgroups);
    const std::uint32_t stage = at + offset;
    const std::uint32_t open = in_block(by.block(shape), at + Producer::barriers(by.team));
    const bool whole = x.count() == kChunk;
    const std::uint32_t counted_by = whole ? full : tail;  // rows beyond the end are cleared first, once a sequence

    if (ring.round > 0) wait(at + Memory::kUsed + 8 * ring.stage, (ring.round - 1) & 1);
    expect_bytes(sent, Memory::kKeys + kTileBytes);  // W, T
    arrive_there(open + Producer::kOpened);
    expect_bytes(full, Memory::kKeys);
#pragma unroll 1
    for (int h = 0; h < D / 64; ++h)
      load_tile(stage + Memory::kQuery + h * kTileBytes, maps.q, 64 * h, x.key_head, x.token(), x.batch, full);
    if (x.transfer) {  // V = 0: once a stage, for nothing else comes there
      if (x.chunk < shape.depth) clear_tiles(memory + offset + Memory::kValue, shape.warpgroups);
    } else {
      expect_bytes(counted_by, values);
#pragma unroll 1
      for (int h = 0; h < shape.warpgroups; ++h)
        load_tile(stage + Memory::kValue + h * kTileBytes, maps.v, first + 64 * h, x.head, x.token(), x.batch,
                  counted_by);
    }
    if (!whole) {
      if (lane == 0) arrive(tail);
      __syncwarp();
      wait(tail, 0);
      clear_rows<32>(memory + offset + Memory::kValue, shape.warpgroups, x.count(), lane);
    }
    if (ring.round > 0) wait(at + Memory::kFree + 8 * ring.stage, (ring.round - 1) & 1);
    expect_bytes(sent, kTileBytes + sizeof(Factors));  // P and the factors
    if (lane == 0) arrive(sent);
    arrive_there(open + Producer::kRestOpened);
    expect_bytes(counted_by, Memory::kKeys);
#pragma unroll 1
    for (int h = 0; h < D / 64; ++h)
      load_tile(stage + Memory::kKey + h * kTileBytes, maps.k, 64 * h, x.key_head, x.token(), x.batch, counted_by);
    if (!whole) {
      if (lane == 0) arrive(tail);
      __syncwarp();
      wait(tail, 1);
      clear_rows<32>(memory + offset + Memory::kKey, D / 64, x.count(), lane);
    }
    __syncwarp();
    arrive(full);  // each lane for the zeros it wrote
  }
}

/// The warp that tells a clerk that what it sent has arrived. The stage is not free before it has.
template <int D>
__device__ void acknowledge(const Arguments& a, const Shape& shape, unsigned char* memory, unsigned cluster) {
  using Memory = ChainShared<D>;
  const std::uint32_t at = shared_address(memory);
  Ring ring;
  Preparer by;
  int steps = 0;
  for (Walk x(a, shape, cluster); x.step(steps); steps = 1, ring.next(shape.depth), by.next(shape)) {
    wait(at + Memory::kSent + 8 * ring.stage, ring.round & 1);
    arrive_there(in_block(by.block(shape), at + TeamShared<D>::barriers(by.team) + TeamShared<D>::kLanded));
    if (threadIdx.x % 32 == 0) arrive(at + Memory::kFree + 8 * ring.stage);
    __syncwarp();
  }
}

/// One warpgroup's 64 rows of S along the chunks, on transposes, S [64 x d_k] being the left operand:
/// \f[ E^\top = V^\top T^\top - S W^\top, \quad O^\top = (S Q^\top) D_f + E^\top P^\top, \quad
///     S \leftarrow \gamma_C S + (E^\top D_w) K. \f]
/// Accumulators, rounded and packed in place, are the left operand of the next product.
/// \param group  the warpgroup's number among those that carry S   \param first  its first row
/// \formula{F84}
template <class In, int D, bool Trace>
__device__ void carry_state(const Arguments& a, const Shape& shape, unsigned char* memory, unsigned cluster, int group,
                            int first) {
  using Memory = ChainShared<D>;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4, matrix = lane / 8, r = lane % 8;
  const std::uint32_t at = shared_address(memory);
  const int turn_at = Memory::kTurn + (4 * group + warp) * Memory::kWarpTurn;
  const std::uint32_t turn = at + turn_at;
  const unsigned char* const turned = memory + turn_at;
  const int channel = first + 16 * warp;  // of the warp's first row

  Ring ring;
  for (unsigned number = cluster; number < shape.parts; number += shape.clusters) {
    const Part part = find_part(a, shape, number);
    const int first_row = channel + g, column = 2 * t;  // of the thread's first number
    float S[D / 2];                                     // [64 x d_k] over the warpgroup
    std::uint32_t left[D / 4];                          // S rounded: a left operand
    if (part.from.data) {
      read_state(S, part.from, first_row, column);
    } else {
#pragma unroll
      for (int e = 0; e < D / 2; ++e)
        S[e] = part.transfer && first_row + e / 2 % 2 * 8 == column + e / 4 * 8 + e % 2 ? 1 : 0;
    }
#pragma unroll
    for (int i = 0; i < D / 4; ++i) left[i] = pack<In>(S[2 * i], S[2 * i + 1]);

    // o^T of a chunk is turned round through shared memory, and leaves while the products of the next chunk run.
    const Sequence tokens{part.batch, part.begin, part.length, 0};
    In* o = const_cast<In*>(row<In>(a.o, tokens, lane / 2 - kChunk, part.head)) + channel + lane % 2 * 8;
    int tokens_left = part.outputs ? part.length + kChunk : 0;  // to store, from the first token of the chunk before
    auto store_output = [&](bool there) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = 16 * i + lane / 2;
        store_if(there && token < tokens_left, o + 16 * i * a.o.stride_t,
                 *reinterpret_cast<const uint4*>(turned + swizzled<32>(token, lane % 2)));
      }
      o += kChunk * a.o.stride_t;
      tokens_left -= kChunk;
      __syncwarp();
    };

    for (int c = 0; c < part.chunks; ++c, ring.next(shape.depth)) {
      const int stage = Memory::stages(shape.warpgroups) + ring.stage * Memory::stage(shape.warpgroups);
      const std::uint32_t tiles = place_of(at + stage);
      const std::uint32_t factors = at + Memory::kFactors + ring.stage * static_cast<int>(sizeof(Factors));
      wait(at + Memory::kFull + 8 * ring.stage, ring.round & 1);
      wait(at + Memory::kSent + 8 * ring.stage, ring.round & 1);
      float E[32], O[32];  // [64 x 64 tokens]; what lies at kW is -W, for products only add
      pin(left);
      begin_products();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        multiply_columns<In>(E, rows_along_n(tiles, Memory::kValue + group * kTileBytes + 2048 * k, kTileBytes),
                             rows_along_k(tiles, Memory::kT + 32 * k), k > 0);
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
        multiply<In>(E, left + 4 * k, rows_along_k(tiles, Memory::kW + k / 4 * kTileBytes + k % 4 * 32));
      commit_products();
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
        multiply<In>(O, left + 4 * k, rows_along_k(tiles, Memory::kQuery + k / 4 * kTileBytes + k % 4 * 32), k > 0);
      commit_products();
      store_output(c > 0);
      float write[16], gamma, unused;
      load_pair(gamma, unused, factors + offsetof(Factors, gamma));
#pragma unroll
      for (int j = 0; j < 8; ++j)
        load_pair(write[2 * j], write[2 * j + 1], factors + offsetof(Factors, write) + 4 * (8 * j + 2 * t));
      pin(write);
      wait_products<1>();
      pin(E);

      std::uint32_t errors[16], written[16];  // E^T and E^T D_w, left operands
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        errors[i] = pack<In>(E[2 * i], E[2 * i + 1]);
        written[i] = pack<In>(write[i / 2 * 2] * E[2 * i], write[i / 2 * 2 + 1] * E[2 * i + 1]);
      }
#pragma unroll
      for (int e = 0; e < D / 2; ++e) S[e] *= gamma;
      pin(errors), pin(written), pin(S);
      wait_products<0>();
      pin(O);
      if (lane == 0) arrive(at + Memory::kUsed + 8 * ring.stage);
      if (Trace && part.outputs && a.trace.Z)
#pragma unroll
        for (int e = 0; e < 32; ++e)
          static_cast<float*>(
              a.trace.Z)[(part.place(a, c) * kChunk + e / 4 * 8 + 2 * t + e % 2) * a.d_v + first_row + e / 2 % 2 * 8] =
              E[e];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float f0, f1;
        load_pair(f0, f1, factors + offsetof(Factors, output) + 4 * (8 * j + 2 * t));
        O[4 * j] *= f0, O[4 * j + 1] *= f1, O[4 * j + 2] *= f0, O[4 * j + 3] *= f1;
      }
      pin(S), pin(O);
      begin_products();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        multiply_along_n<In>(S, written + 4 * k, rows_along_n(tiles, Memory::kKey + 2048 * k, kTileBytes));
      commit_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply<In>(O, errors + 4 * k, rows_along_k(tiles, Memory::kP + 32 * k));
      commit_products();
      wait_products<1>();
      pin(S);
#pragma unroll
      for (int i = 0; i < D / 4; ++i) left[i] = pack<In>(S[2 * i], S[2 * i + 1]);
      pin(left);
      wait_products<0>();
      pin(O);
      if (lane == 0) arrive(at + Memory::kFree + 8 * ring.stage);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        std::uint32_t out[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i] = pack<In>(O[4 * j + 2 * i], O[4 * j + 2 * i + 1]);
        store_matrices_transposed(turn + swizzled<32>(8 * (j + matrix / 2) + r, matrix % 2), out);
      }
      __syncwarp();
      if (Trace && part.outputs && a.trace.S)
#pragma unroll
        for (int e = 0; e < D / 2; ++e)
          static_cast<float*>(
              a.trace.S)[(part.place(a, c) * a.d_v + first_row + e / 2 % 2 * 8) * D + e / 4 * 8 + 2 * t + e % 2] = S[e];
    }
    store_output(part.chunks > 0);
    if (part.to.data) write_state(S, part.to, first_row, column);
  }
}

}  // namespace delta::gpu
