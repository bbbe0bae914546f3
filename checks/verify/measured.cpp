// SPDX-License-Identifier: Apache-2.0
#include "checks/verify/measured.hpp"

#include "checks/core/ratio.hpp"

namespace delta {

void Total::add(const Total& x) {
  want2 += x.want2, error2 += x.error2;
  zero_want = zero_want && x.zero_want, zero_got = zero_got && x.zero_got, finite = finite && x.finite;
}

void compare(Measured& m, const Mat<double>& want, const Mat<double>& got) {
  const Mat<double> E = got - want;
  m.error = relative_error(want, E, m.measure);
  m.total = {want.squaredNorm(), E.squaredNorm(), want.isZero(0), got.isZero(0), got.allFinite()};
}

void locate(Measured& m, const Mat<double>& want, const Mat<double>& got) {
  const Mat<double> E = got - want;
  const double size = norm_of(want, m.measure);
  // A state is measured as a whole: a row is off if it holds more than its share of the error.
  const bool whole = m.measure == Measure::whole;
  const double row_share = whole ? 1 / std::sqrt(static_cast<double>(E.rows())) : 1,
               channel_share = 1 / std::sqrt(static_cast<double>(E.cols()));
  m.rows.setZero(E.rows()), m.channels.setZero(E.cols());
  for (Index c = 0; c < E.cols() && E.rows() > 0; ++c)
    m.channels[c] = relative(whole ? E.col(c).stableNorm() : E.col(c).cwiseAbs().maxCoeff(), size) / channel_share;
  for (Index r = 0; r < E.rows() && E.cols() > 0; ++r) {
    m.rows[r] = relative(E.row(r).stableNorm(), size) / row_share;
    const double badness = ratio_of(m.rows[r], m.expected);
    const bool first = !(badness < kMarginal) && !m.first_bad, worst = badness > m.badness;
    if (!first && !worst) continue;
    const Index c = furthest(E, r);
    const BadPlace place{m.tensor, m.b, m.first_row + r, m.head, c, want(r, c), got(r, c)};
    if (first) m.first_bad = place;
    if (worst) m.worst = place, m.badness = badness;
  }
}

}  // namespace delta
