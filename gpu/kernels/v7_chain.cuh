// SPDX-License-Identifier: Apache-2.0
// The chain of v7: 64 rows of S a warpgroup, in registers, and the errors solved for on the way.
#pragma once
#include <cstddef>

#include "gpu/kernels/v7_block.cuh"

namespace delta::gpu {

/// A thread's numbers of consecutive tokens, two of every eight. \param at  where its first two lie
template <int N> __device__ inline void load_factors(float (&x)[N], std::uint32_t at) {
#pragma unroll
  for (int j = 0; j < N / 2; ++j) load_pair(x[2 * j], x[2 * j + 1], at + 32 * j);
}

/// One warpgroup's 64 rows of S along the chunks, on transposes, S [64 x d_k] being the left operand:
/// \f[ R^\top = V^\top - (S K^\top + S Q^\top \mathrm{diag}(\lambda)) D_a, \quad (I + L)\,E = R, \quad
///     O^\top = (S Q^\top) D_f + E^\top P^\top, \quad S \leftarrow \gamma_C S + (E^\top D_w) K. \f]
/// E is solved for in two squares of 32 tokens, in tf32, with the inverses of their diagonal squares:
/// \f[ E_1 = A_{11} R_1, \quad E_2 = A_{22}\,(R_2 - L_{21} E_1). \f]
/// Accumulators, rounded, are the left operand of the next product. What is fetched from shared memory behind a product
/// whose left operand is in registers waits for it; so what a step needs is asked for before the products of the last
/// one, where registers allow. \param group  the warpgroup's number among those that carry S \formula{F84}
template <class In, int D, bool Trace>
__device__ void carry_alone(const Arguments& a, const Shape& shape, unsigned char* block, int group) {
  using Memory = AloneShared<D>;
  const int warp = uniform(static_cast<int>(threadIdx.x) / 32 % 4);
  const std::uint32_t at = shared_address(block);
  const int channel = 64 * group + 16 * warp;  // of the warp's first row

  unsigned n = 0;  // the chunk's number
  for (unsigned number = blockIdx.x; number < shape.parts; number += shape.clusters) {
    const Part part = find_part(a, shape, number);
    const int in_warp = threadIdx.x % 32, first_row = channel + in_warp / 4;
    float S[D / 2];             // [64 x d_k] over the warpgroup
    std::uint32_t left[D / 4];  // S rounded: a left operand
    if (part.from.data) {
      read_state(S, part.from, first_row, in_warp % 4 * 2);
    } else {
#pragma unroll
      for (int e = 0; e < D / 2; ++e) S[e] = 0;
    }
#pragma unroll
    for (int i = 0; i < D / 4; ++i) left[i] = pack<In>(S[2 * i], S[2 * i + 1]);
    for (int c = 0; c < part.chunks; ++c, ++n) {
      const unsigned team = n % Memory::kTeams;  // that prepares it
      const int lane = static_cast<int>(anew(threadIdx.x % 32)), t = lane % 4, matrix = lane / 8, r = lane % 8;
      const std::uint32_t keys = place_of(at + Memory::kKey + n % Memory::kStages * Memory::kStage),
                          squares = place_of(at + Memory::kSquares + team * 3 * Memory::kSquareBytes32),
                          scores = place_of(at + Memory::kScores + n % Memory::kScored * kTileBytes);
      const int value = Memory::value(shape.warpgroups, group, n), count = part.length - kChunk * c;
      // The warp's 16 channels of V: 32 bytes of each row of the tile.
      const auto of_warp = [&](int token, int half) { return value + swizzled<128>(token, 2 * warp + half); };
      const std::uint32_t all_factors = shared_address(&Memory::factors(block, n)),
                          factors = all_factors + static_cast<unsigned>(8 * t);  // of the thread's tokens
      Memory::wait_full(at, n);
      Memory::wait_for(at, Memory::kValueFull, n);
      if (count < kChunk) {  // beyond the end anything may lie: the team clears K and Q there, each warp its part of V
        Memory::wait_for(at, Memory::kReady, n);
        for (int i = count + lane / 2; i < kChunk; i += 16)
          *reinterpret_cast<uint4*>(block + of_warp(i, lane % 2)) = make_uint4(0, 0, 0, 0);
        __syncwarp();
      }
      if (group == 1) Memory::wait_for(at, Memory::kTurn, n);  // the tensor cores are the other one's until then
      // [64 x 64 tokens] over the warpgroup: S K^T, then S X^T; S Q^T, later O^T.
      float SX[32], O[32];
      pin(left);
      begin_products();
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
        multiply<In>(SX, left + 4 * k, rows_along_k(keys, k / 4 * kTileBytes + k % 4 * 32), k > 0);
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
        multiply<In>(O, left + 4 * k, rows_along_k(keys, Memory::kQuery + k / 4 * kTileBytes + k % 4 * 32), k > 0);
      commit_products();
      std::uint32_t V[16];  // V^T as given, two numbers a register: V[p] goes with SX[2 p] and SX[2 p + 1]
#pragma unroll
      for (int m = 0; m < 4; ++m)
        load_matrices_transposed(four(V + 4 * m),
                                 at + static_cast<unsigned>(of_warp(16 * m + 8 * (matrix / 2) + r, matrix % 2)));
      wait_products<0>();
      pin(SX), pin(O), pin(V);
      if (group == 0) arrive_once(Memory::of_team(at, Memory::kTurn, n));

      Memory::wait_for(at, Memory::kReady, n);
      if (a.lambda.data)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          float l0, l1;
          load_pair(l0, l1, factors + offsetof(TokenFactors, lambda) + 32 * j);
          SX[4 * j] += l0 * O[4 * j], SX[4 * j + 1] += l1 * O[4 * j + 1];
          SX[4 * j + 2] += l0 * O[4 * j + 2], SX[4 * j + 3] += l1 * O[4 * j + 3];
        }
      const float gamma = __uint_as_float(load_word(all_factors + offsetof(TokenFactors, gamma)));
      float R[2][16], E[2][16];  // R^T and E^T, tokens 0 .. 31 and 32 .. 63
      const auto make_R = [&](int h) {
#pragma unroll
        for (int j = 4 * h; j < 4 * h + 4; ++j) {
          float f0, f1;
          load_pair(f0, f1, factors + offsetof(TokenFactors, read) + 32 * j);
#pragma unroll
          for (int p = 2 * j; p < 2 * j + 2; ++p) {
            const float2 v = unpack<In>(V[p]);
            const int e = 2 * p - 16 * h;
            R[h][e] = v.x + f0 * SX[2 * p], R[h][e + 1] = v.y + f1 * SX[2 * p + 1];
          }
        }
        pin(R[h]);
      };
      // to (+)= from (that square)^T, begun.
      const auto times = [&](float(&to)[16], const float(&from)[16], int square, bool add) {
        std::uint32_t operand[16];
#pragma unroll
        for (int k = 0; k < 4; ++k) as_tf32(operand + 4 * k, from + 4 * k);
        pin(operand);
        begin_products();
#pragma unroll
        for (int k = 0; k < 4; ++k)
          multiply_tf32(to, operand + 4 * k, rows_along_k(squares, square * Memory::kSquareBytes32 + 32 * k),
                        add || k > 0);
        commit_products();
      };
      float write[2][8], output[16];
      std::uint32_t errors[2][8], written[2][8];  // E^T and E^T D_w, left operands
      const auto round_errors = [&](int h) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float *const w = write[h] + i / 2 * 2, *const e = E[h] + 2 * i;
          errors[h][i] = pack<In>(e[0], e[1]), written[h][i] = pack<In>(w[0] * e[0], w[1] * e[1]);
        }
        pin(errors[h]), pin(written[h]);
      };
      const auto update_state = [&](int h) {
#pragma unroll
        for (int k = 0; k < 2; ++k)
          multiply_along_n<In>(S, written[h] + 4 * k, rows_along_n(keys, 2048 * (2 * h + k), kTileBytes));
        commit_products();
      };
      const auto update_output = [&](int h) {
#pragma unroll
        for (int k = 0; k < 2; ++k) multiply<In>(O, errors[h] + 4 * k, rows_along_k(scores, 32 * (2 * h + k)));
        commit_products();
      };
      make_R(0), make_R(1);
      times(E[0], R[0], Memory::kA11, false);
      load_factors(write[0], factors + offsetof(TokenFactors, write));
      wait_products<0>();
      pin(E[0]), pin(write[0]);
      times(R[1], E[0], Memory::kMinusL21, true);
      round_errors(0);
#pragma unroll
      for (int e = 0; e < D / 2; ++e) S[e] *= gamma;
      pin(S);
      load_factors(write[1], factors + offsetof(TokenFactors, write) + 128);
      wait_products<0>();
      pin(R[1]), pin(write[1]);
      times(E[1], R[1], Memory::kA22, false);
      update_state(0);  // the fence in `times` serves this, too
      load_factors(output, factors + offsetof(TokenFactors, output));
      wait_products<1>();
      pin(E[1]);
      round_errors(1);
      begin_products();
      update_state(1);
      pin(output);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        O[4 * j] *= output[2 * j], O[4 * j + 1] *= output[2 * j + 1];
        O[4 * j + 2] *= output[2 * j], O[4 * j + 3] *= output[2 * j + 1];
      }
      pin(O);
      begin_products();
      update_output(0), update_output(1);
      wait_products<2>();
      pin(S);
#pragma unroll
      for (int i = 0; i < D / 4; ++i) left[i] = pack<In>(S[2 * i], S[2 * i + 1]);
      pin(left);
      wait_products<0>();
      pin(O);
      if (Trace && a.trace.Z)
#pragma unroll
        for (int e = 0; e < 32; ++e)
          static_cast<float*>(
              a.trace.Z)[(part.place(a, c) * kChunk + 2 * t + column_of(e)) * a.d_v + first_row + row_of(e)] =
              E[e / 16][e % 16];
#pragma unroll
      for (int m = 0; m < 4; ++m) {  // o where V was: 16 tokens x 16 channels
        std::uint32_t out[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i] = pack<In>(O[8 * m + 2 * i], O[8 * m + 2 * i + 1]);
        store_matrices_transposed(at + static_cast<unsigned>(of_warp(16 * m + 8 * (matrix / 2) + r, matrix % 2)), out);
      }
      __syncwarp();
      if (count < kChunk) {
        const Sequence tokens{part.batch, part.begin + kChunk * c, count, 0};
        for (int i = lane / 2; i < count; i += 16)
          *reinterpret_cast<uint4*>(const_cast<In*>(row<In>(a.o, tokens, i, part.head)) + channel + lane % 2 * 8) =
              *reinterpret_cast<const uint4*>(block + of_warp(i, lane % 2));
        __syncwarp();
      }
      arrive_once(Memory::finished(at, n));
      if (Trace && a.trace.S)
#pragma unroll
        for (int e = 0; e < D / 2; ++e)
          static_cast<float*>(
              a.trace.S)[(part.place(a, c) * a.d_v + first_row + row_of(e)) * D + 2 * t + column_of(e)] = S[e];
    }
    if (part.to.data) write_state(S, part.to, first_row, in_warp % 4 * 2);
  }
}

}  // namespace delta::gpu
