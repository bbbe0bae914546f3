// SPDX-License-Identifier: Apache-2.0
// What a kernel makes of a problem in its precision: the chunk form with a rounding at every place where a kernel
// rounds. It predicts the error of correct code; it is no judge of values.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/core/micro_step.hpp"
#include "reference/scalars/rounded.hpp"

namespace delta {

/// How a kernel computes: its chunk length, how it solves, and the formats at its rounding points. Sums are kept in
/// the working type F (float on a GPU), as tensor cores do.
struct Schedule {
  Index C = 64;            ///< tokens per chunk; 0: the recurrence, token by token
  bool one_solve = false;  ///< Z = T (V - X S^T) with beta inside T;  else W = T P, U~ = T V, Z = U~ - W S^T
  Format operand = kBf16;  ///< operands of products: keys, scores, W, U~, Z, and S where it is multiplied
  Format inverse = kBf16;  ///< T = (I + L)^-1, computed in F and stored in this format
  Format state = kFp32;    ///< S between chunks (between tokens, in the recurrence)
  double stretch = 1;      ///< the grid of the roundings, stretched by a factor in [1, 2): another draw of the errors;
                           ///< in the recurrence it also says where sums begin
};

/// Rounds to a format. A number that the format holds already is left alone; others fall on its stretched grid.
template <class F> class Round {
 public:
  Round(const Format& f, double stretch) : f_(f), stretch_(static_cast<F>(stretch)) {}

  bool identity() const { return f_.p >= std::numeric_limits<F>::digits; }
  F operator()(F x) const {
    if (identity()) return x;
    const F y = nearest(x);
    return y == x || stretch_ == F(1) ? y : nearest(x * stretch_) / stretch_;
  }
  Mat<F> operator()(Mat<F> A) const {
    if (!identity())
      for (F& x : A.reshaped()) x = (*this)(x);
    return A;
  }

 private:
  F nearest(F x) const {
    if constexpr (std::is_same_v<F, float>) {
      if (f_.emin <= -126) {  // the range of a float: only bits are dropped
        const int drop = 24 - f_.p;
        std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
        if ((bits & 0x7f800000) == 0x7f800000) return x;
        bits += (std::uint32_t{1} << (drop - 1)) - 1 + ((bits >> drop) & 1);
        return std::bit_cast<float>(bits & ~((std::uint32_t{1} << drop) - 1));
      }
    }
    return static_cast<F>(f_.round(static_cast<double>(x)));
  }
  Format f_;
  F stretch_;
};

/// The decays of one chunk as a kernel keeps them: running sums of their logarithms, in F, and the number of exact
/// zeros so far. Place 0 is the chunk's start, place i + 1 is after micro-step i.
template <class F> class ChunkDecay {
 public:
  using Row = Eigen::Array<F, 1, Eigen::Dynamic>;

  ChunkDecay(const MicroStep<double>* steps, Index R, Index d_k) {
    const bool scalar = std::all_of(steps, steps + R, [](const MicroStep<double>& s) { return s.d.scalar(); });
    const Index cols = scalar ? 1 : d_k;
    log_.setZero(R + 1, cols), zeros_.setZero(R + 1, cols);
    for (Index i = 0; i < R; ++i)
      for (Index c = 0; c < cols; ++c) {
        const double d = steps[i].d[c];
        any_zero_ = any_zero_ || d == 0;
        log_(i + 1, c) = log_(i, c) + (d == 0 ? F(0) : static_cast<F>(std::log(d)));
        zeros_(i + 1, c) = zeros_(i, c) + (d == 0);
      }
  }
  bool scalar() const { return log_.cols() == 1; }
  /// The product of the decays between two places, a <= b: exp of a difference, 0 across a reset.
  /// \pre scalar() for `number`, which is the same for the one column that there is
  F number(Index a, Index b) const { return zeros_(a, 0) == zeros_(b, 0) ? std::exp(log_(b, 0) - log_(a, 0)) : F(0); }
  Row between(Index a, Index b) const {
    const Row e = (log_.row(b) - log_.row(a)).exp();
    return any_zero_ ? Row((zeros_.row(a) == zeros_.row(b)).select(e, F(0))) : e;
  }
  /// A row of key space, decayed between two places.
  template <class Derived> void multiply(Eigen::MatrixBase<Derived>&& row, Index a, Index b) const {
    if (scalar())
      row *= number(a, b);
    else
      row.array() *= between(a, b);
  }

 private:
  Eigen::Array<F, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> log_;
  Eigen::Array<int, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> zeros_;
  bool any_zero_ = false;
};

/// What is read, where it is read, and how many write keys it sees: row i is read at place `at[i]` and sees the rows
/// j < upto[i].
template <class F> struct Reads {
  Mat<F> X;  ///< [n x d_k]
  std::vector<Index> at, upto;
};

/// Scores x_i . (Phi_{j..i} y_j) for j < upto[i], 0 beyond  [n x R]. A scalar decay multiplies the product X Y^T; a
/// decay per channel goes into the operands, seen from the first row of the sub-chunk so that no factor exceeds 1, and
/// within a sub-chunk the sum is formed directly.
template <class F>
Mat<F> scores(const Reads<F>& r, const Mat<F>& Y, const ChunkDecay<F>& decay, const Round<F>& round) {
  constexpr Index kSub = 16;
  const auto n = static_cast<Index>(r.at.size());
  Mat<F> A = Mat<F>::Zero(n, Y.rows());
  if (decay.scalar()) {
    const Mat<F> XY = r.X * Y.transpose();
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < r.upto[i]; ++j) A(i, j) = XY(i, j) * decay.number(j + 1, r.at[i]);
    return A;
  }
  for (Index first = 0; first < n;) {
    const Index start = r.upto[first] / kSub * kSub;  // the sub-chunk of the row, and of those that share it
    Index last = first;
    while (last < n && r.upto[last] / kSub * kSub == start) ++last;
    if (start > 0) {
      Mat<F> left = r.X.middleRows(first, last - first), right = Y.topRows(start);
      for (Index i = first; i < last; ++i) decay.multiply(left.row(i - first), start, r.at[i]);
      for (Index j = 0; j < start; ++j) decay.multiply(right.row(j), j + 1, start);
      A.block(first, 0, last - first, start) = round(left) * round(right).transpose();
    }
    for (Index i = first; i < last; ++i)
      for (Index j = start; j < r.upto[i]; ++j)
        A(i, j) = (r.X.row(i).array() * Y.row(j).array() * decay.between(j + 1, r.at[i])).sum();
    first = last;
  }
  return A;
}

/// The chunk form of any rule with the roundings of a schedule.
/// \f[ T = (I + L)^{-1}, \quad Z = TB(V - \bar X S^\top), \quad S' = S\,\Phi + Z^\top Y_{out},
///     \quad O = Q_{in} S^\top + A Z \f]
/// \param stream  its Q without the read-out scale: the scale multiplies the sums, in F
template <class F> Output<double> rounded_chunks(const Stream<double>& stream, double scale, const Schedule& how) {
  const Index d_k = stream.d_k(), d_v = stream.d_v(), m = stream.m;
  const Round<F> round(how.operand, how.stretch), round_inverse(how.inverse, how.stretch),
      round_state(how.state, how.stretch);
  Output<double> out{Mat<double>(stream.tokens(), d_v), {}};
  Mat<F> S = stream.S0.cast<F>();  // [d_v x d_k]
  for (Index begin = 0; begin < stream.tokens(); begin += how.C) {
    const Index c = std::min(how.C, stream.tokens() - begin), R = m * c;
    const MicroStep<double>* steps = stream.steps.data() + m * begin;
    Reads<F> x{Mat<F>(R, d_k), {}, {}}, q{stream.Q.middleRows(begin, c).cast<F>(), {}, {}};
    Mat<F> Y(R, d_k), V(R, d_v);
    Vec<F> beta(R);
    for (Index i = 0; i < R; ++i) {
      const MicroStep<double>& s = steps[i];
      x.X.row(i) = s.x.transpose().cast<F>(), Y.row(i) = s.y.transpose().cast<F>();
      V.row(i) = s.v.transpose().cast<F>(), beta[i] = static_cast<F>(s.beta);
      x.at.push_back(s.pre_decay ? i : i + 1), x.upto.push_back(i);
      if ((i + 1) % m == 0) q.at.push_back(i + 1), q.upto.push_back(i + 1);
    }
    x.X = round(x.X), q.X = round(q.X), Y = round(Y), V = round(V);
    const ChunkDecay<F> decay(steps, R, d_k);

    const Mat<F> L = beta.asDiagonal() * scores(x, Y, decay, round);  // [R x R]  strictly lower
    const Mat<F> T = L.template triangularView<Eigen::UnitLower>().solve(Mat<F>::Identity(R, R));  // [R x R]
    const Mat<F> S_op = round(S);  // [d_v x d_k]  S as an operand
    // Rows that read the state at the chunk's start: a scalar decay multiplies the product, one per channel the
    // operand.
    auto from_state = [&](const Reads<F>& r) {
      Mat<F> X = r.X;
      Vec<F> gamma = Vec<F>::Ones(X.rows());
      for (Index i = 0; i < X.rows(); ++i)
        if (decay.scalar())
          gamma[i] = decay.number(0, r.at[i]);
        else
          decay.multiply(X.row(i), 0, r.at[i]);
      return Mat<F>(gamma.asDiagonal() * (round(X) * S_op.transpose()));
    };
    Mat<F> Z;  // [R x d_v]
    if (how.one_solve) {
      Z = round_inverse(T * beta.asDiagonal()) * round(V - from_state(x));
    } else {
      Mat<F> P = beta.asDiagonal() * x.X;  // [R x d_k]
      for (Index i = 0; i < R; ++i) decay.multiply(P.row(i), 0, x.at[i]);
      const Mat<F> T_op = round_inverse(T);
      const Mat<F> W = round(T_op * round(P));                      // [R x d_k]
      const Mat<F> U = round(T_op * round(beta.asDiagonal() * V));  // [R x d_v]
      Z = U - W * S_op.transpose();
    }
    const Mat<F> A = round(scores(q, Y, decay, round));          // [c x R]
    const Mat<F> O = (from_state(q) + A * round(Z)) * F(scale);  // [c x d_v]
    out.O.middleRows(begin, c) = O.template cast<double>();

    Mat<F> Z_out = Z, Y_out = Y;
    for (Index j = 0; j < R; ++j)
      decay.scalar() ? decay.multiply(Z_out.row(j), j + 1, R) : decay.multiply(Y_out.row(j), j + 1, R);
    for (Index v = 0; v < d_v; ++v) decay.multiply(S.row(v), 0, R);
    S = round_state(S + round(Z_out).transpose() * round(Y_out));  // [d_v x d_k]
  }
  out.S = S.template cast<double>();
  return out;
}

/// S x as a loop over the columns sums it, from some column on: the order that a thread per row has. Eigen's products
/// sum in several parts and are better than that.
template <class F> Vec<F> product(const Mat<F>& S, const Vec<F>& x, Index first) {
  Vec<F> sum = Vec<F>::Zero(S.rows());
  for (Index i = 0; i < x.size(); ++i) {
    const Index c = (first + i) % x.size();
    sum += S.col(c) * x[c];
  }
  return sum;
}

/// The recurrence in F, the state rounded after every token; nothing else is.
template <class F> Output<double> rounded_recurrence(const Stream<double>& stream, double scale, const Schedule& how) {
  const Round<F> round_state(how.state, how.stretch);
  Output<double> out{Mat<double>(stream.tokens(), stream.d_v()), {}};
  // A decay comes from an exp that is right to a unit in the last place. Where the gate hardly changes it errs the same
  // way in every token, and nothing averages out.
  const F slip = 1 + std::numeric_limits<F>::epsilon();
  const auto exponential = [&](const Vec<F>& d) {
    return Vec<F>(d.unaryExpr([&](F x) { return x == F(1) ? x : x * slip; }));
  };
  const auto first = static_cast<Index>((how.stretch - 1) * static_cast<double>(stream.d_k()));
  Mat<F> S = stream.S0.cast<F>();
  for (Index t = 0; t < stream.tokens(); ++t) {
    for (Index i = stream.m * t; i < stream.m * (t + 1); ++i) {
      const MicroStep<double>& s = stream.steps[i];
      const Vec<F> x = s.x.cast<F>(), y = s.y.cast<F>(), v = s.v.cast<F>();
      Vec<F> prediction;
      if (s.pre_decay) prediction = product(S, x, first);
      if (!s.d.none()) Decay<F>(exponential(Vec<F>(s.d.d.cast<F>()))).decay_columns(S);
      if (!s.pre_decay) prediction = product(S, x, first);
      S += (F(s.beta) * (v - prediction)) * y.transpose();
    }
    S = round_state(S);
    const Vec<F> o = product(S, Vec<F>(stream.Q.row(t).transpose().cast<F>()), first);
    out.O.row(t) = (o * F(scale)).transpose().template cast<double>();
  }
  out.S = S.template cast<double>();
  return out;
}

template <class F> Output<double> simulate(const Stream<double>& stream, double scale, const Schedule& how) {
  return how.C == 0 ? rounded_recurrence<F>(stream, scale, how) : rounded_chunks<F>(stream, scale, how);
}

}  // namespace delta
