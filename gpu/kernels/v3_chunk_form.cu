// SPDX-License-Identifier: Apache-2.0
// v3: the chunk form as it is written, in shared memory, without tensor cores.
//
// Change      tokens are taken C at a time: what depended on the token before becomes one triangular solve, everything
//             else is matrix products. S, W and U~ stay in shared memory; 32 value channels a block.
// Prediction  C tokens share each read of S, and only T / C steps are serial; on plain fp32 units the products cost
//             more arithmetic than the recurrence, so it should lose to v2 until the products leave those units.
// Gained      nothing, as predicted: on an H200 (1, 8192, 16) takes 15 ms as with v2, (1, 8192, 64) 29 ms where v2
//             takes 16. It is the formula, and v4 and v5 are compared with it line by line.
#include "gpu/kernels/launch.hpp"

namespace delta::gpu {
namespace {

constexpr int kThreads = 256;

/// \f[ (I + L)W = BX, \quad (I + L_g)\tilde U = BV, \quad Z = \tilde U - D_g W S^\top \f]
/// \f[ S' = \gamma_C S + Z^\top K_{out}, \qquad O = D_g Q S^\top + (H \odot Q K^\top) Z \f]
/// H is built from running products, so alpha = 0 inside a chunk is no special case.
/// \formula{F37} \formula{F53} \formula{F55} \formula{F83} \formula{F84}
template <class In, class Acc> __global__ void __launch_bounds__(kThreads) chunk_form(const Arguments a, const int C) {
  extern __shared__ __align__(16) unsigned char memory[];
  const int d_k = a.d_k, d_v = a.d_v, wide = d_k + 1, square = C + 1,
            slim = kTile + 1;                     // padded against bank conflicts
  Acc* const Q = reinterpret_cast<Acc*>(memory);  // [C x d_k]
  Acc* const K = Q + C * wide;                    // [C x d_k]
  Acc* const W = K + C * wide;                    // [C x d_k]
  Acc* const S = W + C * wide;                    // [32 x d_k] this block's rows of the state
  Acc* const Z = S + kTile * wide;                // [C x 32]   U~, then Z
  Acc* const XK = Z + C * slim;                   // [C x C]    X K^T
  Acc* const QK = XK + C * square;                // [C x C]    Q K^T
  Acc* const H = QK + C * square;                 // [C x C]    H_ij = alpha_{j+1} ... alpha_i
  Acc *const alpha = H + C * square, *const beta = alpha + C, *const lambda = beta + C, *const gamma = lambda + C;

  const int tiles = (d_v + kTile - 1) / kTile;
  const std::int64_t lane = blockIdx.x / tiles;
  const int head = lane % a.HV, first = blockIdx.x % tiles * kTile, channels = min(kTile, d_v - first);
  const std::int64_t n = lane / a.HV;
  const Sequence s = a.sequence(n);
  const int thread = threadIdx.x;

  for (int e = thread; e < channels * d_k; e += kThreads) {
    const int m = e / d_k, j = e % d_k;
    S[m * wide + j] =
        a.initial_state ? static_cast<const Acc*>(a.initial_state)[a.state_index(lane, first + m, j)] : Acc(0);
  }

  for (std::int64_t begin = 0; begin < s.length; begin += C) {
    const int c = static_cast<int>(min(static_cast<std::int64_t>(C), s.length - begin));
    const std::int64_t chunk = ((first_slot(a, n, C) + begin / C) * a.HV + head);  // its entry in the trace
    __syncthreads();

    for (int e = thread; e < c * d_k; e += kThreads) {
      const int i = e / d_k, j = e % d_k;
      Q[i * wide + j] = number<Acc>(row<In>(a.q, s, begin + i, a.key_head(head))[j]);
      K[i * wide + j] = number<Acc>(row<In>(a.k, s, begin + i, a.key_head(head))[j]);
    }
    for (int i = thread; i < c; i += kThreads) {
      alpha[i] = decay<Acc>(a, s, begin + i, head, 0);
      beta[i] = scalar<Acc>(a.beta, s, begin + i, head, 1);
      lambda[i] = scalar<Acc>(a.lambda, s, begin + i, head, 0);
    }
    __syncthreads();
    if (a.l2norm) {
      for (int i = thread; i < c; i += kThreads) {
        Acc qq = 0, kk = 0;
        for (int j = 0; j < d_k; ++j) qq += Q[i * wide + j] * Q[i * wide + j], kk += K[i * wide + j] * K[i * wide + j];
        const Acc q_norm = sqrt(qq + Acc(a.eps)), k_norm = sqrt(kk + Acc(a.eps));
        for (int j = 0; j < d_k; ++j) Q[i * wide + j] /= q_norm, K[i * wide + j] /= k_norm;
      }
      __syncthreads();
    }

    // X K^T and Q K^T, X = c K + diag(lambda) Q; only i >= j is ever used.
    for (int e = thread; e < c * c; e += kThreads) {
      const int i = e / c, j = e % c;
      if (j > i) continue;
      Acc kk = 0, qk = 0;
      for (int d = 0; d < d_k; ++d) kk += K[i * wide + d] * K[j * wide + d], qk += Q[i * wide + d] * K[j * wide + d];
      XK[i * square + j] = (a.reads_key ? kk : Acc(0)) + lambda[i] * qk;
      QK[i * square + j] = qk;
    }
    for (int j = thread; j < c; j += kThreads) {
      H[j * square + j] = 1;
      for (int i = j + 1; i < c; ++i) H[i * square + j] = alpha[i] * H[(i - 1) * square + j];
    }
    for (int e = thread; e < c * d_k; e += kThreads) {  // B X
      const int i = e / d_k, j = e % d_k;
      W[i * wide + j] = beta[i] * ((a.reads_key ? K[i * wide + j] : Acc(0)) + lambda[i] * Q[i * wide + j]);
    }
    for (int e = thread; e < c * channels; e += kThreads) {  // B V
      const int i = e / channels, m = e % channels;
      Z[i * slim + m] = beta[i] * number<Acc>(row<In>(a.v, s, begin + i, head)[first + m]);
    }
    __syncthreads();
    for (int i = thread; i < c; i += kThreads) gamma[i] = alpha[0] * H[i * square];

    // Forward substitution, a column a thread: W with L = sl(B X K^T), U~ with L_g = sl(B (H . X K^T)).
    for (int column = thread; column < d_k + channels; column += kThreads) {
      const bool decayed = column >= d_k;
      Acc* const y = decayed ? Z + column - d_k : W + column;
      const int stride = decayed ? slim : wide;
      for (int i = 1; i < c; ++i) {
        Acc sum = 0;
        for (int j = 0; j < i; ++j)
          sum += (decayed ? H[i * square + j] * XK[i * square + j] : XK[i * square + j]) * y[j * stride];
        y[i * stride] -= beta[i] * sum;
      }
    }
    __syncthreads();

    if (first == 0) {
      for (int i = thread; i < c; i += kThreads)
        if (a.trace.gamma) static_cast<Acc*>(a.trace.gamma)[chunk * C + i] = gamma[i];
      for (int e = thread; e < C * C; e += kThreads) {
        const int i = e / C, j = e % C;
        if (a.trace.L_g)
          static_cast<Acc*>(a.trace.L_g)[chunk * C * C + e] =
              i < c && j < i ? beta[i] * H[i * square + j] * XK[i * square + j] : Acc(0);
      }
      if (a.trace.inverse)
        for (int column = thread; column < C; column += kThreads) {
          Acc* const y = static_cast<Acc*>(a.trace.inverse) + chunk * C * C + column;
          for (int i = 0; i < C; ++i) {
            Acc sum = 0;
            if (i < c)
              for (int j = 0; j < i; ++j) sum += H[i * square + j] * XK[i * square + j] * y[j * C];
            y[i * C] = Acc(i == column) - (i < c ? beta[i] * sum : Acc(0));
          }
        }
      if (a.trace.W)
        for (int e = thread; e < c * d_k; e += kThreads)
          static_cast<Acc*>(a.trace.W)[chunk * C * d_k + e] = W[e / d_k * wide + e % d_k];
    }
    if (a.trace.U)
      for (int e = thread; e < c * channels; e += kThreads)
        static_cast<Acc*>(a.trace.U)[(chunk * C + e / channels) * d_v + first + e % channels] =
            Z[e / channels * slim + e % channels];
    __syncthreads();

    for (int e = thread; e < c * channels; e += kThreads) {  // Z = U~ - D_g W S^T
      const int i = e / channels, m = e % channels;
      Acc sum = 0;
      for (int d = 0; d < d_k; ++d) sum += W[i * wide + d] * S[m * wide + d];
      Z[i * slim + m] -= gamma[i] * sum;
      if (a.trace.Z) static_cast<Acc*>(a.trace.Z)[(chunk * C + i) * d_v + first + m] = Z[i * slim + m];
    }
    __syncthreads();

    for (int e = thread; e < c * channels; e += kThreads) {  // O = D_g Q S^T + (H . Q K^T) Z
      const int i = e / channels, m = e % channels;
      Acc old = 0, within = 0;
      for (int d = 0; d < d_k; ++d) old += Q[i * wide + d] * S[m * wide + d];
      for (int j = 0; j <= i; ++j) within += H[i * square + j] * QK[i * square + j] * Z[j * slim + m];
      const_cast<In*>(row<In>(a.o, s, begin + i, head))[first + m] =
          number<In>(Acc(a.scale) * (gamma[i] * old + within));
    }
    __syncthreads();

    for (int e = thread; e < channels * d_k; e += kThreads) {  // S' = gamma_C S + Z^T K_out
      const int m = e / d_k, d = e % d_k;
      Acc sum = 0;
      for (int j = 0; j < c; ++j) sum += Z[j * slim + m] * H[(c - 1) * square + j] * K[j * wide + d];
      const Acc next = gamma[c - 1] * S[m * wide + d] + sum;
      S[m * wide + d] = next;
      if (a.trace.S) static_cast<Acc*>(a.trace.S)[(chunk * d_v + first + m) * d_k + d] = next;
    }
  }
  __syncthreads();
  if (a.final_state)
    for (int e = thread; e < channels * d_k; e += kThreads)
      static_cast<Acc*>(a.final_state)[a.state_index(lane, first + e / d_k, e % d_k)] = S[e / d_k * wide + e % d_k];
}

}  // namespace

cudaError_t launch_v3(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  return with_types(dtype, [&]<class In, class Acc>(In, Acc) {
    const auto shared = static_cast<int>(v3_shared(plan.chunk, a.d_k, sizeof(Acc)));
    const cudaError_t error = allow_all_shared_memory(chunk_form<In, Acc>);
    if (error != cudaSuccess) return error;
    const auto blocks = static_cast<unsigned>(a.N * a.HV * ((a.d_v + kTile - 1) / kTile));
    chunk_form<In, Acc><<<blocks, kThreads, shared, stream>>>(a, plan.chunk);
    return cudaGetLastError();
  });
}

}  // namespace delta::gpu
