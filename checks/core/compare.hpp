// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "reference/core/problem.hpp"
#include "reference/scalars/convert.hpp"

namespace delta {

/// One element of an output.
struct Place {
  std::string_view tensor;    ///< "o" or "final_state"
  std::size_t lane = 0;       ///< n * HV + j: value head j of sequence n
  Index row = 0, column = 0;  ///< token and channel of o; row and column of a state
  double want = 0, got = 0;
};

/// How far a result is from the exact one, the worst lane deciding (a lane is one head of one sequence).
///   o      max_t |o_t - o*_t|_2 / max_t |o*_t|_2
///   state  |S - S*|_F / |S*|_F
/// 0/0 is 0, x/0 is infinite, and whatever is not finite makes the error infinite.
struct Distance {
  double o = 0, state = 0;
  bool all_zero = true;        ///< the exact result is zero everywhere: nothing was tested
  std::optional<Place> worst;  ///< the element with the largest error against the size of its lane
};

/// \pre same lanes, same shapes   \tparam J the scalar that judges, at least as wide as the one judged
template <Real J, Real T> Distance distance(const Result<J>& want, const Result<T>& got) {
  auto wide = [](const T& x) { return convert<J>(x); };
  auto narrow = [](const J& x) { return Scalar<J>::to_double(x); };
  Distance d;
  double worst = 0;
  // The error of the rows of one tensor, relative to the largest row (o) or to the whole (a state).
  auto measure = [&](std::string_view tensor, std::size_t lane, const Mat<J>& W, const Mat<T>& G, bool by_row) {
    const Mat<double> w = W.unaryExpr(narrow), e = Mat<J>(G.unaryExpr(wide) - W).unaryExpr(narrow);
    auto norm = [&](const Mat<double>& A) {
      return A.size() == 0 ? 0.0 : by_row ? A.rowwise().stableNorm().maxCoeff() : A.stableNorm();
    };
    const double size = norm(w);
    d.all_zero = d.all_zero && size == 0;
    double error = 0;
    for (Index r = 0; r < e.rows(); ++r)
      for (Index c = 0; c < e.cols(); ++c) {
        const double a = std::isfinite(e(r, c)) ? std::abs(e(r, c)) / (e(r, c) == 0 ? 1 : size) : INFINITY;
        error = std::max(error, a);
        if (a > worst) {
          worst = a;
          d.worst = {tensor, lane, r, c, w(r, c), w(r, c) + e(r, c)};
        }
      }
    return error == 0 || std::isinf(error) ? error : norm(e) / size;
  };
  for (std::size_t lane = 0; lane < want.size(); ++lane) {
    d.o = std::max(d.o, measure("o", lane, want[lane].O, got[lane].O, true));
    d.state = std::max(d.state, measure("final_state", lane, want[lane].S, got[lane].S, false));
  }
  return d;
}

}  // namespace delta
