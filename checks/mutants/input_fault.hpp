// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "reference/core/problem.hpp"
#include "reference/layer/normalise.hpp"
#include "reference/scalars/scalar.hpp"

namespace delta {

/// How q and k are normalised where the kernel is asked to do it itself.
enum class Norm { as_asked, missing, twice, only_k, eps_on_mean, eps_as_floor };

/// A mistake in how a kernel takes its inputs.
struct InputFault {
  bool heads_tiled = false;     ///< key head j mod H for value head j
  bool lambda_missing = false;  ///< lambda = 0
  bool segment_leak = false;    ///< a packed sequence starts from the state that the one before it left
  Norm norm = Norm::as_asked;

  bool operator==(const InputFault&) const = default;
  /// Both mistakes. \pre at most one of the two is about the norm
  InputFault operator|(const InputFault& b) const {
    return {heads_tiled || b.heads_tiled, lambda_missing || b.lambda_missing, segment_leak || b.segment_leak,
            norm == Norm::as_asked ? b.norm : norm};
  }
};

/// x / sqrt(|x|^2 + eps), or what is mistaken for it. The zero vector stays zero, whatever eps is.
template <Real T> Vec<T> normalised(const Vec<T>& x, const T& eps, Norm how) {
  if (how == Norm::missing || x.isZero(T(0))) return x;
  const Vec<T> once = l2_normalise<T>(x, eps,
                                      how == Norm::eps_on_mean    ? Eps::in_mean
                                      : how == Norm::eps_as_floor ? Eps::floor
                                                                  : Eps::in_sum);
  return how == Norm::twice ? l2_normalise<T>(once, eps) : once;
}

/// The inputs as a kernel takes them that makes this mistake, or none: key heads brought to the value heads that use
/// them, q and k normalised where the problem asks for it. A leak between sequences is not seen in the inputs.
template <Ring T> Problem<T> taken(Problem<T> p, const InputFault& fault) {
  Shape& z = p.shape;
  if (fault.lambda_missing) p.lambda = {};
  if (fault.heads_tiled && z.H < z.HV) {
    const auto tile = [&](const Tensor<T>& x) {
      Tensor<T> all(x.B, x.tokens, z.HV, x.cols, x.rows);
      for (Index b = 0; b < x.B; ++b)
        for (Index t = 0; t < x.tokens; ++t)
          for (Index j = 0; j < z.HV; ++j) std::copy_n(x.at(b, t, j % z.H), x.rows * x.cols, all.at(b, t, j));
      return all;
    };
    p.q = tile(p.q), p.k = tile(p.k);
    z.H = z.HV;
  }
  if constexpr (!Scalar<T>::exact)
    if (p.l2norm) {
      const auto normalise = [&](Tensor<T>& x, Norm how) {
        for (Index b = 0; b < x.B; ++b)
          for (Index t = 0; t < x.tokens; ++t)
            for (Index h = 0; h < x.heads; ++h)
              Eigen::Map<Vec<T>>(x.at(b, t, h), x.cols) = normalised<T>(x.row(b, t, h), *p.l2norm, how);
      };
      normalise(p.k, fault.norm);
      normalise(p.q, fault.norm == Norm::only_k ? Norm::missing : fault.norm);
      p.l2norm.reset();
    }
  return p;
}

}  // namespace delta
