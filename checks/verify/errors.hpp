// SPDX-License-Identifier: Apache-2.0
// The errors that verdicts are made of.
#pragma once
#include <algorithm>
#include <cmath>

#include "reference/core/micro_step.hpp"

namespace delta {

/// Errors of an output against the exact one: o by its worst row, the state as a whole.
struct Errors {
  double o = 0, state = 0;
};

/// |x| / size, where 0/0 is 0 and whatever is not finite is infinite.
inline double relative(double x, double size) {
  if (!std::isfinite(x) || !std::isfinite(size)) return INFINITY;
  return x == 0 ? 0 : x / size;
}

inline double largest_row(const Mat<double>& A) { return A.size() == 0 ? 0 : A.rowwise().stableNorm().maxCoeff(); }

/// max_t |o_t - o*_t| / max_t |o*_t|
inline double row_error(const Mat<double>& want, const Mat<double>& got) {
  const Mat<double> E = got - want;
  return relative(E.allFinite() ? largest_row(E) : INFINITY, largest_row(want));
}

/// |S - S*|_F / |S*|_F
inline double whole_error(const Mat<double>& want, const Mat<double>& got) {
  const Mat<double> E = got - want;
  return relative(E.allFinite() ? E.stableNorm() : INFINITY, want.stableNorm());
}

inline Errors errors(const Output<double>& want, const Output<double>& got) {
  return {row_error(want.O, got.O), got.S.size() == 0 ? 0 : whole_error(want.S, got.S)};
}

inline void raise(Errors& to, const Errors& e) { to.o = std::max(to.o, e.o), to.state = std::max(to.state, e.state); }

inline double ratio_of(double error, double expected) { return error == 0 ? 0 : error / expected; }

}  // namespace delta
