// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>

#include "../core/linalg.hpp"

namespace delta {

/// Where an implementation adds its epsilon. On vectors of length about 1 the four agree to some d eps; on small ones
/// they are four different functions (d = 128, eps = 1e-6, entries of 1e-3: `in_mean` is 29 % away from `in_sum`).
enum class Eps {
  in_sum,   ///< x / sqrt(sum x^2 + eps): the delta-rule kernels
  in_mean,  ///< x / sqrt(sum x^2 + d eps): an RMS norm rescaled by 1/sqrt(d)
  floor,    ///< x / max(|x|, eps): `normalize` of the tensor libraries
  added,    ///< x / (|x| + eps)
};

/// x scaled to unit length. The zero vector stays zero.
/// \param x [d]   \param eps above 0
/// \formula{F98}
/// \needs{sqrt}
template <Real T> Vec<T> l2_normalise(const Vec<T>& x, const T& eps, Eps where = Eps::in_sum) {
  using std::sqrt;
  const T sum = x.dot(x), length = sqrt(sum);
  const T divisor = where == Eps::in_sum    ? T(sqrt(T(sum + eps)))
                    : where == Eps::in_mean ? T(sqrt(T(sum + T(static_cast<int>(x.size())) * eps)))
                    : where == Eps::floor   ? (length < eps ? eps : length)
                                            : T(length + eps);
  return x / divisor;
}

}  // namespace delta
