// SPDX-License-Identifier: Apache-2.0
// v2: the same recurrence with the state in registers.
//
// Change      S never leaves the chip: a warp owns four rows of S, a lane every 128th group of four columns, and sums
//             over the columns are shuffles. The next token is loaded while this one is computed.
// Prediction  v1 spends its time on 4 d_k cache accesses a row and token; none is left, so a token costs its two sums
//             (five shuffles each) and its arithmetic, about 0.3 us, and T = 1 (decoding) is a copy of the state.
// Gained      (1, 8192, 16) on an H200: 15 ms where v1 takes 82, 1.9 us a token: what is loaded ahead is converted
//             where it is loaded, and that waits for it. Decoding, (256, 1, 32): 0.56 ms with numbers moved one by one,
//             0.43 four at a time.
#include "gpu/kernels/launch.hpp"

namespace delta::gpu {
namespace {

constexpr int kWarps = 4;        // of a block
constexpr int kRowsPerWarp = 4;  // rows of S a warp owns
constexpr unsigned kAll = 0xffffffffu;

template <class Acc> __device__ Acc sum_over_warp(Acc x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
}

/// One token as a lane sees it: its columns of q and k and their decays.
/// \tparam M groups of four columns a lane owns: 1 for d_k up to 128, 2 up to 256
template <class In, class Acc, int M> struct Columns {
  Acc q[4 * M], k[4 * M], alpha[4 * M], v[kRowsPerWarp], beta, lambda;

  static __device__ int column(int m) { return m / 4 * 128 + threadIdx.x % 32 * 4 + m % 4; }

  __device__ void load(const Arguments& a, const Sequence& s, std::int64_t t, int head, int first_row) {
    const In* const q_t = row<In>(a.q, s, t, a.key_head(head));
    const In* const k_t = row<In>(a.k, s, t, a.key_head(head));
    const In* const v_t = row<In>(a.v, s, t, head);
#pragma unroll
    for (int m = 0; m < 4 * M; ++m) {
      const int j = column(m);
      q[m] = j < a.d_k ? number<Acc>(q_t[j]) : Acc(0);
      k[m] = j < a.d_k ? number<Acc>(k_t[j]) : Acc(0);
      alpha[m] = a.per_channel ? (j < a.d_k ? decay<Acc>(a, s, t, head, j) : Acc(1)) : Acc(0);
    }
    if (!a.per_channel) {
      const Acc one = decay<Acc>(a, s, t, head, 0);
#pragma unroll
      for (int m = 0; m < 4 * M; ++m) alpha[m] = one;
    }
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) v[r] = first_row + r < a.d_v ? number<Acc>(v_t[first_row + r]) : Acc(0);
    beta = scalar<Acc>(a.beta, s, t, head, 1);
    lambda = scalar<Acc>(a.lambda, s, t, head, 0);
  }

  __device__ void normalise(Acc eps) {
    Acc qq = 0, kk = 0;
#pragma unroll
    for (int m = 0; m < 4 * M; ++m) qq += q[m] * q[m], kk += k[m] * k[m];
    const Acc q_norm = sqrt(sum_over_warp(qq) + eps), k_norm = sqrt(sum_over_warp(kk) + eps);
#pragma unroll
    for (int m = 0; m < 4 * M; ++m) q[m] /= q_norm, k[m] /= k_norm;
  }
};

/// Four neighbouring numbers, moved at once.
template <class Acc> struct __align__(4 * sizeof(Acc)) Quad { Acc x[4]; };

/// \tparam Vectors  the states are [d_v, d_k], aligned and d_k is a multiple of four: they move four numbers at a time
/// \formula{F72}
template <class In, class Acc, int M, bool Vectors>
__global__ void __launch_bounds__(32 * kWarps) state_in_registers(const Arguments a) {
  constexpr int kRows = kWarps * kRowsPerWarp;
  const int tiles = (a.d_v + kRows - 1) / kRows;
  const std::int64_t lane = blockIdx.x / tiles;
  const int first_row = blockIdx.x % tiles * kRows + threadIdx.x / 32 * kRowsPerWarp;
  const int head = lane % a.HV;
  const Sequence s = a.sequence(lane / a.HV);
  if (first_row >= a.d_v) return;
  using Token = Columns<In, Acc, M>;

  Acc S[kRowsPerWarp][4 * M];  // S[r][m] is S(first_row + r, column(m))
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r)
#pragma unroll
    for (int m = 0; m < 4 * M; ++m) {
      const int i = first_row + r, j = Token::column(m);
      if constexpr (Vectors) {
        if (m % 4) continue;
        Quad<Acc> four{};
        if (a.initial_state && i < a.d_v && j < a.d_k)
          four =
              *reinterpret_cast<const Quad<Acc>*>(static_cast<const Acc*>(a.initial_state) + a.state_index(lane, i, j));
#pragma unroll
        for (int e = 0; e < 4; ++e) S[r][m + e] = four.x[e];
        continue;
      }
      S[r][m] = a.initial_state && i < a.d_v && j < a.d_k
                    ? static_cast<const Acc*>(a.initial_state)[a.state_index(lane, i, j)]
                    : Acc(0);
    }

  Token next;
  if (s.length > 0) next.load(a, s, 0, head, first_row);
  for (std::int64_t t = 0; t < s.length; ++t) {
    Token x = next;
    if (t + 1 < s.length) next.load(a, s, t + 1, head, first_row);
    if (a.l2norm) x.normalise(Acc(a.eps));

    Acc e[kRowsPerWarp], o[kRowsPerWarp];
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      e[r] = 0;
#pragma unroll
      for (int m = 0; m < 4 * M; ++m) {
        S[r][m] *= x.alpha[m];                                                    // forget
        e[r] += S[r][m] * ((a.reads_key ? x.k[m] : Acc(0)) + x.lambda * x.q[m]);  // predict
      }
    }
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) e[r] = x.v[r] - sum_over_warp(e[r]);
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      o[r] = 0;
#pragma unroll
      for (int m = 0; m < 4 * M; ++m) {
        S[r][m] += x.beta * e[r] * x.k[m];  // correct
        o[r] += S[r][m] * x.q[m];           // read
      }
    }
    In* const o_t = const_cast<In*>(row<In>(a.o, s, t, head));
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      o[r] = Acc(a.scale) * sum_over_warp(o[r]);
      if (threadIdx.x % 32 == r && first_row + r < a.d_v) o_t[first_row + r] = number<In>(o[r]);
    }
  }

  if (a.final_state) {
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r)
#pragma unroll
      for (int m = 0; m < 4 * M; ++m) {
        const int i = first_row + r, j = Token::column(m);
        if constexpr (Vectors) {
          if (m % 4 || i >= a.d_v || j >= a.d_k) continue;
          *reinterpret_cast<Quad<Acc>*>(static_cast<Acc*>(a.final_state) + a.state_index(lane, i, j)) = {
              S[r][m], S[r][m + 1], S[r][m + 2], S[r][m + 3]};
          continue;
        }
        if (i < a.d_v && j < a.d_k) static_cast<Acc*>(a.final_state)[a.state_index(lane, i, j)] = S[r][m];
      }
  }
}

}  // namespace

cudaError_t launch_v2(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t&, cudaStream_t stream) {
  return with_types(dtype, [&]<class In, class Acc>(In, Acc) {
    const int rows = kWarps * kRowsPerWarp;
    const auto blocks = static_cast<unsigned>(a.N * a.HV * ((a.d_v + rows - 1) / rows));
    const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % (4 * sizeof(Acc)) == 0; };
    const bool vectors = a.state_vk && a.d_k % 4 == 0 && aligned(a.initial_state) && aligned(a.final_state);
    auto launch = [&](auto kernel) { kernel<<<blocks, 32 * kWarps, 0, stream>>>(a); };
    if (a.d_k <= 128)
      launch(vectors ? state_in_registers<In, Acc, 1, true> : state_in_registers<In, Acc, 1, false>);
    else
      launch(vectors ? state_in_registers<In, Acc, 2, true> : state_in_registers<In, Acc, 2, false>);
    return cudaGetLastError();
  });
}

}  // namespace delta::gpu
