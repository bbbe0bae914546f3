// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "checks/verify/rounded_chunk.hpp"
#include "checks/verify/verdict.hpp"

namespace delta {

/// How a file is judged: everything that its lanes share.
struct Plan {
  const Subject& subject;
  std::vector<Schedule> draws;  ///< of what correct code makes
  std::vector<Schedule> more;   ///< further ones, before a tensor fails that few numbers decide
  bool wide = false;            ///< the reference is computed in double-double
  bool certify_all = true;  ///< the judge is checked against double-double in each lane; else against chunks, in some
};

/// Small problems are drawn more often and certified in every lane; of large ones some lanes are.
Plan plan_for(const Subject& subject);

/// Judges o, and the final state if there is one, of value head j in sequence n.
/// \param certify  hold the reference against a second computation
Evidence judge_outputs(const Plan& plan, Index n, Index j, bool certify);

/// Judges the gradients of the value heads that share key head h in sequence n.
std::vector<Measured> judge_gradients(const Plan& plan, Index n, Index h, bool certify);

/// A tensor stored in a format: the last rounding of a kernel.
inline Mat<double> stored(const Mat<double>& A, const Format& f) {
  return f.p >= kFp64.p ? A : Mat<double>(A.unaryExpr([&](double x) { return f.round(x); }));
}

/// Rounding a tensor to its type may cost u in every element, whatever came before; in double, the reference is rounded
/// as well.
inline double last_rounding(const Format& f, bool wide) { return (wide ? 2 : 0.7) * f.unit(); }

}  // namespace delta
