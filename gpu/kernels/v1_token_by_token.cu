// SPDX-License-Identifier: Apache-2.0
// v1: the recurrence token by token, as it is defined.
//
// Change      none: this is where the ladder starts. One thread owns one row of S (one value channel) and keeps it in
//             global memory; the token's q, k, x and decays are in shared memory. Nothing is reused, nothing is clever.
// Prediction  each token reads and writes S twice through the caches: 4 d_k numbers a row and token.
// Gained      where the others are measured from: 10 us a token on an H200, for any number of heads up to 64, for the
//             chain of dependent accesses is all there is; (8, 2048, 16) takes 21 ms.
#include "gpu/kernels/launch.hpp"

namespace delta::gpu {
namespace {

constexpr int kRows = 64;  // value channels of a block

/// \f[ S \leftarrow S\,\mathrm{diag}(\alpha), \quad \tilde e = v - S x, \quad S \leftarrow S + \beta\,\tilde e\,k^\top,
///     \quad o = \mathrm{scale}\; S q, \qquad x = c\,k + \lambda q \f]
/// \formula{F72}
template <class In, class Acc> __global__ void __launch_bounds__(kRows) token_by_token(const Arguments a) {
  extern __shared__ __align__(16) unsigned char memory[];
  const int d_k = a.d_k, d_v = a.d_v;
  Acc* const q = reinterpret_cast<Acc*>(memory);  // [d_k]
  Acc* const k = q + d_k;                         // [d_k]
  Acc* const x = k + d_k;                         // [d_k] what the prediction is read with
  Acc* const alpha = x + d_k;                     // [d_k] the decay of each key channel

  const int tiles = (d_v + kRows - 1) / kRows;
  const std::int64_t lane = blockIdx.x / tiles;
  const int i = blockIdx.x % tiles * kRows + threadIdx.x;  // this thread's value channel
  const int head = lane % a.HV;
  const Sequence s = a.sequence(lane / a.HV);
  const bool owner = i < d_v;

  // S as [d_k][d_v], so that neighbouring threads touch neighbouring numbers.
  Acc* const S = static_cast<Acc*>(a.workspace) + lane * d_k * d_v + i;
  if (owner)
    for (int j = 0; j < d_k; ++j)
      S[static_cast<std::int64_t>(j) * d_v] =
          a.initial_state ? static_cast<const Acc*>(a.initial_state)[a.state_index(lane, i, j)] : Acc(0);

  for (std::int64_t t = 0; t < s.length; ++t) {
    __syncthreads();
    for (int j = threadIdx.x; j < d_k; j += kRows) {
      q[j] = number<Acc>(row<In>(a.q, s, t, a.key_head(head))[j]);
      k[j] = number<Acc>(row<In>(a.k, s, t, a.key_head(head))[j]);
      alpha[j] = decay<Acc>(a, s, t, head, j);
    }
    __syncthreads();
    Acc q_norm = 1, k_norm = 1;
    if (a.l2norm) {
      Acc qq = 0, kk = 0;
      for (int j = 0; j < d_k; ++j) qq += q[j] * q[j], kk += k[j] * k[j];
      q_norm = sqrt(qq + Acc(a.eps)), k_norm = sqrt(kk + Acc(a.eps));
      __syncthreads();
    }
    const Acc lambda = scalar<Acc>(a.lambda, s, t, head, 0), beta = scalar<Acc>(a.beta, s, t, head, 1);
    for (int j = threadIdx.x; j < d_k; j += kRows) {
      q[j] /= q_norm, k[j] /= k_norm;
      x[j] = (a.reads_key ? k[j] : Acc(0)) + lambda * q[j];
    }
    __syncthreads();
    if (!owner) continue;

    Acc prediction = 0;
    for (int j = 0; j < d_k; ++j) {
      const Acc decayed = alpha[j] * S[static_cast<std::int64_t>(j) * d_v];  // forget
      S[static_cast<std::int64_t>(j) * d_v] = decayed;
      prediction += decayed * x[j];  // predict
    }
    const Acc e = number<Acc>(row<In>(a.v, s, t, head)[i]) - prediction;
    Acc o = 0, after = 0;
    for (int j = 0; j < d_k; ++j) {
      const Acc corrected = S[static_cast<std::int64_t>(j) * d_v] + beta * e * k[j];  // correct
      S[static_cast<std::int64_t>(j) * d_v] = corrected;
      o += corrected * q[j];  // read
      after += corrected * x[j];
    }
    const_cast<In*>(row<In>(a.o, s, t, head))[i] = number<In>(Acc(a.scale) * o);

    const std::int64_t at = ((s.batch * a.T + s.begin + t) * a.HV + head) * d_v + i;
    if (a.trace.e_prior) static_cast<Acc*>(a.trace.e_prior)[at] = e;
    if (a.trace.e_posterior)
      static_cast<Acc*>(a.trace.e_posterior)[at] = number<Acc>(row<In>(a.v, s, t, head)[i]) - after;
    if (a.trace.states)
      for (int j = 0; j < d_k; ++j)
        static_cast<Acc*>(a.trace.states)[at * d_k + j] = S[static_cast<std::int64_t>(j) * d_v];
  }

  if (owner && a.final_state)
    for (int j = 0; j < d_k; ++j)
      static_cast<Acc*>(a.final_state)[a.state_index(lane, i, j)] = S[static_cast<std::int64_t>(j) * d_v];
}

}  // namespace

cudaError_t launch_v1(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t&, cudaStream_t stream) {
  return with_types(dtype, [&]<class In, class Acc>(In, Acc) {
    const auto blocks = static_cast<unsigned>(a.N * a.HV * ((a.d_v + kRows - 1) / kRows));
    token_by_token<In, Acc><<<blocks, kRows, 4 * a.d_k * sizeof(Acc), stream>>>(a);
    return cudaGetLastError();
  });
}

}  // namespace delta::gpu
