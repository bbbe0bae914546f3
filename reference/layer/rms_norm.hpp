// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "gates.hpp"

namespace delta {

/// \f[ \mathrm{rms}(x) = w \odot x / \sqrt{\tfrac1d \sum_i x_i^2 + \varepsilon} \f]
/// \param x [d]   \param w [d]
/// \formula{F98}
/// \needs{/ sqrt}
template <Real T> Vec<T> rms_norm(const Vec<T>& x, const Vec<T>& w, const T& eps) {
  using std::sqrt;
  const T mean = x.dot(x) / T(static_cast<int>(x.size()));
  return w.cwiseProduct(x) / T(sqrt(T(mean + eps)));
}

/// The head's output, normalised, then gated by SiLU of another projection z of the token. The gate acts on what was
/// read and never on the memory.
/// \param o [d_v]   \param w [d_v]   \param z [d_v]
/// \formula{F64}
/// \needs{/ exp sqrt}
template <Real T> Vec<T> gated_rms_norm(const Vec<T>& o, const Vec<T>& w, const Vec<T>& z, const T& eps) {
  return rms_norm(o, w, eps).cwiseProduct(Vec<T>(z.unaryExpr([](const T& x) { return silu(x); })));
}

}  // namespace delta
