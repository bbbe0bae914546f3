// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>

#include "../core/linalg.hpp"

namespace delta {

/// \f[ \sigma(x) = 1 / (1 + e^{-x}) \f]
/// The exponential is taken of -|x|, so it cannot overflow.
/// \needs{exp}
template <Real T> T sigmoid(const T& x) {
  using std::exp;
  const T e = exp(x < T(0) ? x : T(-x));  // in [0, 1]
  return x < T(0) ? T(e / (T(1) + e)) : T(T(1) / (T(1) + e));
}

/// SiLU, x sigma(x); also known as swish. Its smallest value is -0.2785.
/// \needs{exp}
template <Real T> T silu(const T& x) { return x * sigmoid(x); }

/// \f[ \mathrm{softplus}(x) = \ln(1 + e^x) = \max(x, 0) + \ln(1 + e^{-|x|}) \f]
/// \needs{exp log}
template <Real T> T softplus(const T& x) {
  using std::exp, std::log1p;
  const bool negative = x < T(0);
  return (negative ? T(0) : x) + T(log1p(T(exp(negative ? x : T(-x)))));
}

/// ln softplus(x). Where 1 + e^x rounds to 1 it is x, although softplus(x) itself may have underflowed to 0.
/// \needs{exp log}
template <Real T> T log_softplus(const T& x) {
  using std::exp, std::log;
  return x < T(0) && T(1) + T(exp(x)) == T(1) ? x : T(log(softplus(x)));
}

/// Log decay of Mamba-2, Gated DeltaNet and their kin, from a learned rate, a learned bias and a projection a of the
/// token; g <= 0 always.
/// \f[ g = -e^{A_{log}}\, \mathrm{softplus}(a + dt_{bias}) = -\exp(A_{log} + \ln \mathrm{softplus}(a + dt_{bias})) \f]
/// The second form is computed. In the first the factors may be infinity and 0 where the product is an ordinary number,
/// and the NaN would stay in the state for good.
/// \formula{F62}
/// \needs{exp log}
template <Real T> T log_decay(const T& A_log, const T& a, const T& dt_bias) {
  using std::exp;
  return -T(exp(T(A_log + log_softplus(T(a + dt_bias)))));
}

/// alpha = e^g. A log decay of minus infinity is a reset, alpha = 0, and as good an input as any.
/// \needs{exp}
template <Real T> T decay(const T& g) {
  using std::exp;
  return exp(g);
}

/// RetNet's constant decay of head h = 0, 1, ...: 1 - 2^(-5 - h).
/// \formula{F10}
template <Field T> T retnet_alpha(Index h) {
  T power(32);
  for (; h > 0; --h) power *= T(2);
  return T(1) - T(1) / power;
}

/// A gate in (0, 1) from one projection of the token: beta of the delta rules, and lambda of Q-Delta, whose bias starts
/// at -0.8, lambda = 0.31. Twice the gate is the beta that allows negative eigenvalues.
/// \f[ \sigma(w^\top h + b) \f]
/// \formula{F78} \formula{F99}
/// \needs{exp}
template <Real T> T sigmoid_gate(const Vec<T>& w, const Vec<T>& h, const T& b = T(0)) {
  return sigmoid(T(w.dot(h) + b));
}

}  // namespace delta
