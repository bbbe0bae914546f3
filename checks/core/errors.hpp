// SPDX-License-Identifier: Apache-2.0
// The errors that verdicts are made of, measured in one way wherever something is judged.
#pragma once
#include <algorithm>
#include <cmath>

#include "reference/core/micro_step.hpp"

namespace delta {

/// Errors of an output against the exact one, or what correct code makes of them: o by its worst row, the state as a
/// whole.
struct Errors {
  double o = 0, state = 0;
};

inline void raise(Errors& to, const Errors& e) { to.o = std::max(to.o, e.o), to.state = std::max(to.state, e.state); }

/// How the error of a tensor is measured.
enum class Measure {
  worst_row,  ///< max_t |e_t|_2 / max_t |x_t|_2: rows are tokens, and many right ones must not hide a wrong one
  whole       ///< |E|_F / |X|_F: a state
};

/// |x| / size, where 0/0 is 0 and whatever is not finite is infinite.
inline double relative(double x, double size) {
  if (!std::isfinite(x) || !std::isfinite(size)) return INFINITY;
  return x == 0 ? 0 : x / size;
}

inline double norm_of(const Mat<double>& A, Measure measure) {
  if (A.size() == 0) return 0;
  return measure == Measure::whole ? A.stableNorm() : A.rowwise().stableNorm().maxCoeff();
}

/// \param E  got - want
inline double relative_error(const Mat<double>& want, const Mat<double>& E, Measure measure) {
  return relative(E.allFinite() ? norm_of(E, measure) : INFINITY, norm_of(want, measure));
}

inline Errors errors(const Output<double>& want, const Output<double>& got) {
  return {relative_error(want.O, got.O - want.O, Measure::worst_row),
          got.S.size() == 0 ? 0 : relative_error(want.S, got.S - want.S, Measure::whole)};
}

/// The column of the largest error in a row, or of the first that is not finite.
inline Index furthest(const Mat<double>& E, Index row) {
  Index at = 0;
  for (Index c = 0; c < E.cols(); ++c) {
    if (!std::isfinite(E(row, c))) return c;
    if (std::abs(E(row, c)) > std::abs(E(row, at))) at = c;
  }
  return at;
}

inline double ratio_of(double error, double expected) { return error == 0 ? 0 : error / expected; }

}  // namespace delta
