// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>

#include "../core/linalg.hpp"

namespace delta {

/// The constants of the preconditioner: M lies in (1/range, range) and is 1 where A + eps = e^center.
template <Real T> struct Preconditioner {
  T center = -T(1) / T(5);  ///< learned, one per head; starts here
  T range = T(3) / T(2);    ///< at most 2, or the erase may overshoot
  T eps = T(1) / T(1000) / T(1000);
};

/// The write keys y_t = M_t k_t of `precond_delta`. A_t counts, with decay, how much each key channel was used; M_t
/// shrinks the busy channels and stretches the idle ones, a diagonal stand-in for the inverse of the keys' curvature.
/// \f[ A_t = a_t A_{t-1} + b_t\, k_t \odot k_t, \qquad r = \ln(A_t + \varepsilon) - c, \qquad
///     M_t = \rho^{-r / (1 + |r|)} \f]
/// \param K [T x d_k]   \param a [T] decay of the count   \param b [T] its strength
/// \param A [d_k] in: the count before the first token, out: after the last   \return [T x d_k]
/// \formula{C-precond-delta}
/// \source{arXiv:2604.21100}
/// \needs{/ exp log}
template <Real T>
Mat<T> write_keys(const Mat<T>& K, const Vec<T>& a, const Vec<T>& b, Vec<T>& A, const Preconditioner<T>& c = {}) {
  using std::abs, std::exp, std::log;
  const T log_range = log(c.range);
  Mat<T> Y(K.rows(), K.cols());
  for (Index t = 0; t < K.rows(); ++t)
    for (Index j = 0; j < K.cols(); ++j) {
      A[j] = a[t] * A[j] + b[t] * K(t, j) * K(t, j);
      const T r = T(log(T(A[j] + c.eps))) - c.center;
      const T M = exp(T(-log_range * r / (T(1) + T(abs(r)))));
      Y(t, j) = M * K(t, j);
    }
  return Y;
}

}  // namespace delta
