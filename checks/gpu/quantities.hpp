// SPDX-License-Identifier: Apache-2.0
// The intermediates that a kernel can show, and the same by the reference and by the schedules.
#pragma once
#include <map>
#include <string>

#include "checks/gpu/case.hpp"
#include "gpu/schedule/producer.hpp"
#include "reference/forms/chunkwise.hpp"

namespace delta::gpu {

using Quantities = std::map<std::string, Mat<double>>;  ///< by the name of deltaref_gpu_trace, chunks below each other

void append(Mat<double>& all, const Mat<double>& more);

/// The largest entry by which two matrices differ, over the largest entry wanted.
double apart(const Mat<double>& want, const Mat<double>& got);

template <Ring T> Mat<double> as_double(const Mat<T>& A) {
  return A.unaryExpr([](const T& x) { return Scalar<T>::to_double(x); });
}

/// The recurrence with every sum taken in v1's order, one product after the other. \param shown  what v1 can show
template <Ring T> Output<T> token_by_token(const Stream<T>& s, Quantities* shown = nullptr) {
  Output<T> out{Mat<T>(s.tokens(), s.d_v()), s.S0};
  Mat<T> prior(s.tokens(), s.d_v()), posterior = prior, states(s.tokens() * s.d_v(), s.d_k());
  for (Index t = 0; t < s.tokens(); ++t) {
    const MicroStep<T>& m = s.steps[static_cast<std::size_t>(t)];
    for (Index i = 0; i < s.d_v(); ++i) {
      T prediction = T(0), o = T(0), after = T(0);
      for (Index j = 0; j < s.d_k(); ++j) out.S(i, j) *= m.d[j], prediction += out.S(i, j) * m.x[j];
      const T e = m.v[i] - prediction;
      for (Index j = 0; j < s.d_k(); ++j) {
        out.S(i, j) += m.beta * e * m.y[j];
        o += out.S(i, j) * s.Q(t, j), after += out.S(i, j) * m.x[j];
      }
      out.O(t, i) = o, prior(t, i) = e, posterior(t, i) = m.v[i] - after;
    }
    if (shown) states.middleRows(t * s.d_v(), s.d_v()) = out.S;
  }
  if (shown)
    *shown = {
        {"e_prior", as_double<T>(prior)}, {"e_posterior", as_double<T>(posterior)}, {"states", as_double<T>(states)}};
  return out;
}

/// L and its inverse, as wide as a kernel writes them. \param square  the inverse is known in diagonal squares of so
/// many rows, and 0 outside of them
inline void append_square(Quantities& q, Index C, const Mat<double>& L, const Mat<double>& inverse, Index square = 64) {
  Mat<double> wide = Mat<double>::Zero(L.rows(), C);
  wide.leftCols(L.cols()) = L, append(q["L_g"], wide);
  wide.setZero();
  for (Index i = 0; i < L.rows(); i += square) {
    const Index n = std::min(square, L.rows() - i);
    wide.block(i, i, n, n) = inverse.block(i, i, n, n);
  }
  append(q["inverse"], wide);
}

/// What v3 can show, by the CPU's chunk form over T.
template <Ring T> Quantities chunk_quantities(const Stream<T>& s, Index C) {
  Quantities q;
  chunkwise<T>(s, C, [&](const Chunk<T>& h) {
    const Mat<T> I = Mat<T>::Identity(h.L_g.rows(), h.L_g.rows());
    append_square(q, C, as_double<T>(h.L_g), as_double<T>(solve_unit_lower<T>(h.L_g, I)));
    append(q["gamma"], as_double<T>(h.gamma));
    append(q["W"], as_double<T>(h.W)), append(q["U"], as_double<T>(h.U));
    append(q["Z"], as_double<T>(h.Z)), append(q["S"], as_double<T>(h.S));
  });
  return q;
}

/// What v4 can show, by the CPU's form with one solve: there D_g W is what its inverse gives.
template <Ring T> Quantities solve_quantities(const Stream<T>& s, Index C, bool per_channel) {
  Quantities q;
  one_solve<T>(s, C, [&](const OneSolve<T>& h) {
    const Mat<T> I = Mat<T>::Identity(h.L.rows(), h.L.rows());
    append_square(q, C, as_double<T>(h.L), as_double<T>(solve_unit_lower<T>(h.L, I)));
    append(q["W"], as_double<T>(solve_unit_lower<T>(h.L, h.P_bar)));
    append(q["U"], as_double<T>(solve_unit_lower<T>(h.L, h.U)));
    append(q["Z"], as_double<T>(h.Z)), append(q["S"], as_double<T>(h.S));
  });
  if (!per_channel)
    for (Index begin = 0; begin < s.tokens(); begin += C) {
      Vec<T> gamma(std::min(C, s.tokens() - begin));
      for (Index i = 0; i < gamma.size(); ++i) gamma[i] = (i ? gamma[i - 1] : T(1)) * s.steps[begin + i].d[0];
      append(q["gamma"], as_double<T>(gamma));
    }
  return q;
}

/// \pre v5 or newer
inline Solve solve_of(const deltaref_gpu_plan_t& plan) {
  return plan.version == DELTAREF_V7 ? Solve::on_the_chain : Solve::beforehand;
}

/// What v5 and newer can show: the errors E of a chunk's tokens in the place of Z = B E, and what they are solved from,
/// where B stands on the right. \f[ (I + L)\,E = V - D_g X S^\top, \quad L = \mathrm{sl}(H \odot X K^\top)\,B \f]
template <Ring T> Quantities error_quantities(const Stream<T>& s, Index C, Index square) {
  Quantities q;
  Mat<T> S = s.S0;
  for (Index begin = 0; begin < s.tokens(); begin += C) {
    const Index c = std::min(C, s.tokens() - begin);
    const ChunkRows<T> r(s, begin, c);
    const Mat<T> XK = r.X * r.Y.transpose(), from_state = r.X * S.transpose();         // [c x c], [c x d_v]
    const Mat<T> L = strictly_lower<T>(r.H.cwiseProduct(XK) * r.beta.asDiagonal());    // [c x c]
    const Mat<T> E = solve_unit_lower<T>(L, r.V - r.gamma.asDiagonal() * from_state);  // [c x d_v]
    const Vec<T> write = r.beta.cwiseProduct(r.H.row(c - 1).transpose());              // [c]
    S = r.gamma[c - 1] * S + Mat<T>(write.asDiagonal() * E).transpose() * r.Y;         // [d_v x d_k]
    append_square(q, C, as_double<T>(L), as_double<T>(solve_unit_lower<T>(L, Mat<T>::Identity(c, c))), square);
    append(q["gamma"], as_double<T>(r.gamma)), append(q["Z"], as_double<T>(E)), append(q["S"], as_double<T>(S));
  }
  return q;
}

/// The same by the schedule of v4 and newer in their 16 bits.
Quantities scheduled(const Case& c, const deltaref_gpu_plan_t& plan, const Format& f, Index n, Index h);

/// The same out of a kernel's trace, for one sequence and head.
Quantities traced(const Answer& a, const Shape& z, Index n, Index h);

}  // namespace delta::gpu
