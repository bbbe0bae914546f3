// SPDX-License-Identifier: Apache-2.0
// What every kernel is told, and how it finds its sequence, its head and its rows. Offsets are 64 bits wide throughout.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace delta::gpu {

/// A tensor [B, T, heads, width], the last axis contiguous.
struct Rows {
  const void* data;
  std::int64_t stride_b, stride_t, stride_h;
};

/// One sequence: `length` tokens from token `begin` of batch entry `batch`. `first` counts the tokens before it.
struct Sequence {
  std::int64_t batch, begin, length, first;
};

struct Trace {
  void *e_prior, *e_posterior, *states, *gamma, *L_g, *inverse, *W, *U, *Z, *S;
};

struct Arguments {
  Rows q, k, v, o, g, beta, lambda;
  const std::int64_t* offsets;  ///< device copy of cu_seqlens, or nullptr
  std::int64_t N, T;
  int H, HV, d_k, d_v;
  bool reads_key;    ///< c = 1: the prediction is read with the key (linear attention predicts nothing: c = 0)
  bool per_channel;  ///< one decay per key channel
  bool gate_is_log, state_vk, l2norm;
  double scale, eps;
  const void* initial_state;
  void* final_state;
  void* workspace;
  Trace trace;

  __device__ Sequence sequence(std::int64_t n) const {
    if (!offsets) return {n, 0, T, n * T};
    return {0, offsets[n], offsets[n + 1] - offsets[n], offsets[n]};
  }
  __device__ int key_head(int j) const { return j / (HV / H); }

  /// Element (i, j) of S of a lane (sequence n, value head: n * HV + head) in the caller's layout.
  __device__ std::int64_t state_index(std::int64_t lane, int i, int j) const {
    return lane * d_k * d_v +
           (state_vk ? static_cast<std::int64_t>(i) * d_k + j : static_cast<std::int64_t>(j) * d_v + i);
  }
};

/// Chunk slots: chunk c of sequence n has slot first / C + n + c, which no other chunk has.
__device__ inline std::int64_t first_slot(const Arguments& a, std::int64_t n, int C) {
  return a.sequence(n).first / C + n;
}

template <class To, class From> __device__ inline To number(From x) { return static_cast<To>(x); }
template <> __device__ inline float number<float, __nv_bfloat16>(__nv_bfloat16 x) { return __bfloat162float(x); }
template <> __device__ inline float number<float, __half>(__half x) { return __half2float(x); }
template <> __device__ inline __nv_bfloat16 number<__nv_bfloat16, float>(float x) { return __float2bfloat16(x); }
template <> __device__ inline __half number<__half, float>(float x) { return __float2half(x); }

/// Row t of a sequence's head.
template <class In> __device__ inline const In* row(const Rows& x, const Sequence& s, std::int64_t t, int head) {
  return static_cast<const In*>(x.data) + s.batch * x.stride_b + (s.begin + t) * x.stride_t + head * x.stride_h;
}
/// One number of [B, T, HV]; `absent` where the tensor was not given.
template <class Acc>
__device__ inline Acc scalar(const Rows& x, const Sequence& s, std::int64_t t, int head, Acc absent) {
  return x.data ? *row<Acc>(x, s, t, head) : absent;
}

/// e^g. Near g = 0, where a sequence multiplies thousands of them, exp would be wrong by two units in the last place of
/// 1; expm1 is wrong by two of g.
template <class Acc> __device__ inline Acc decay_of(Acc g) { return g > Acc(-0.25) ? 1 + expm1(g) : exp(g); }

/// The decay alpha of key channel j: e^g if what was given is a logarithm. e^-inf = 0 is the reset.
template <class Acc>
__device__ inline Acc decay(const Arguments& a, const Sequence& s, std::int64_t t, int head, int j) {
  if (!a.g.data) return Acc(1);
  const Acc g = row<Acc>(a.g, s, t, head)[a.per_channel ? j : 0];
  return a.gate_is_log ? decay_of(g) : g;
}

}  // namespace delta::gpu
