// SPDX-License-Identifier: Apache-2.0
// What a kernel makes of a problem in its precision: the chunk form with a rounding at every place where a kernel
// rounds. It predicts the error of correct code; it is no judge of values.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include "reference/core/micro_step.hpp"
#include "reference/scalars/rounded.hpp"

namespace delta {

/// The places where a kernel rounds.
enum class Point {
  reads,       ///< rows that are multiplied with the state or with keys: x, q, and P = beta Phi x
  writes,      ///< y as an operand, decayed to the chunk's end or not
  values,      ///< v and beta v
  right_side,  ///< V - X S^T, what a single solve is applied to
  W,           ///< T P
  U,           ///< T V
  Z,           ///< the corrections
  scores,      ///< A, of the outputs
  inverse,     ///< T = (I + L)^-1
  state_read,  ///< S where it is multiplied
  state,       ///< S as it is kept
  count
};

constexpr std::string_view name(Point p) {
  constexpr std::string_view names[] = {"read keys",       "write keys", "values",    "right-hand side", "W", "U~", "Z",
                                        "output scores A", "inverse T",  "operand S", "kept state S"};
  return names[static_cast<int>(p)];
}

constexpr unsigned only(Point p) { return 1u << static_cast<int>(p); }

/// How a kernel computes: its chunk length, how it solves, and the formats at its rounding points. Sums are kept in
/// the working type F (float on a GPU), as tensor cores do.
struct Schedule {
  Index C = 64;               ///< tokens per chunk; 0: the recurrence, token by token
  bool one_solve = false;     ///< Z = T (V - X S^T) with beta inside T;  else W = T P, U~ = T V, Z = U~ - W S^T
  bool decay_on_key = false;  ///< a scalar decay to the chunk's end goes into y, as Mamba-2's kernel has it, not into Z
  Format operand = kBf16;     ///< operands of products: keys, scores, W, U~, Z, and S where it is multiplied
  Format inverse = kBf16;     ///< T = (I + L)^-1, computed in F and stored in this format
  Format state = kFp32;       ///< S between chunks (between tokens, in the recurrence)
  Format beta = kFp64;        ///< the strengths, before anything is done with them
  double stretch = 1;  ///< the grid of the roundings, stretched by a factor in [1, 2): another draw of the errors;
                       ///< in the recurrence it also says where sums begin
  unsigned exact = 0;  ///< places where nothing is rounded after all: `only` of each

  Format format(Point p) const {
    if (exact & only(p)) return kFp64;
    return p == Point::inverse ? inverse : p == Point::state ? state : operand;
  }
};

/// Rounds to a format. A number that the format holds already is left alone; others fall on its stretched grid. Below
/// the normal range steps are equal: stretched, they would be finer than the format's, so that there they stay.
template <class F> class Round {
 public:
  Round(const Format& f, double stretch) : f_(f), stretch_(static_cast<F>(stretch)) {}

  bool identity() const { return f_.p >= std::numeric_limits<F>::digits; }
  F operator()(F x) const {
    if (identity()) return x;
    const F y = nearest(x);
    const bool subnormal = std::abs(x) < std::ldexp(F(1), f_.emin);
    return y == x || stretch_ == F(1) || subnormal ? y : nearest(x * stretch_) / stretch_;
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

/// The roundings of a schedule.
template <class F> struct Rounding {
  Schedule how;
  Mat<F> operator()(Point p, Mat<F> A) const { return Round<F>(how.format(p), how.stretch)(std::move(A)); }
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

/// Tokens within which a decay per channel is formed number by number.
constexpr Index kSubChunk = 16;

/// Scores x_i . (Phi_{j..i} y_j) for j < upto[i], 0 beyond  [n x R]. A scalar decay multiplies the product X Y^T; a
/// decay per channel goes into the operands, seen from the first row of the sub-chunk so that no factor exceeds 1, and
/// within a sub-chunk the sum is formed directly.
template <class F>
Mat<F> scores(const Reads<F>& r, const Mat<F>& Y, const ChunkDecay<F>& decay, const Rounding<F>& round) {
  const auto n = static_cast<Index>(r.at.size());
  Mat<F> A = Mat<F>::Zero(n, Y.rows());
  if (decay.scalar()) {
    const Mat<F> XY = r.X * Y.transpose();
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < r.upto[i]; ++j) A(i, j) = XY(i, j) * decay.number(j + 1, r.at[i]);
    return A;
  }
  for (Index first = 0; first < n;) {
    const Index start = r.upto[first] / kSubChunk * kSubChunk;  // the sub-chunk of the row, and of those that share it
    Index last = first;
    while (last < n && r.upto[last] / kSubChunk * kSubChunk == start) ++last;
    if (start > 0) {
      Mat<F> left = r.X.middleRows(first, last - first), right = Y.topRows(start);
      for (Index i = first; i < last; ++i) decay.multiply(left.row(i - first), start, r.at[i]);
      for (Index j = 0; j < start; ++j) decay.multiply(right.row(j), j + 1, start);
      A.block(first, 0, last - first, start) = round(Point::reads, left) * round(Point::writes, right).transpose();
    }
    for (Index i = first; i < last; ++i)
      for (Index j = start; j < r.upto[i]; ++j)
        A(i, j) = (r.X.row(i).array() * Y.row(j).array() * decay.between(j + 1, r.at[i])).sum();
    first = last;
  }
  return A;
}

/// One chunk as a kernel computes it: R micro-steps, c of which are followed by a read-out.
template <class F> struct RoundedChunk {
  Reads<F> x, q;  ///< [R x d_k] and [c x d_k], operands
  Mat<F> Y, V;    ///< [R x d_k], [R x d_v], operands
  Vec<F> beta;    ///< [R]
  ChunkDecay<F> decay;
  Mat<F> S;         ///< [d_v x d_k] the state at the chunk's start, as an operand
  Mat<F> M, T;      ///< [R x R] scores of x and y; T = (I + B M)^-1
  Mat<F> P, W;      ///< [R x d_k] B Phi X and T P, of the two solves
  Mat<F> E;         ///< [R x d_v] V - X S^T, of the single one
  Mat<F> Z, A;      ///< [R x d_v] corrections, [c x R] scores of the outputs
  bool key_decays;  ///< a scalar decay to the end of the chunk goes into Y

  RoundedChunk(const Stream<double>& stream, Index begin, Index c, const Mat<F>& state, const Rounding<F>& round)
      : decay(stream.steps.data() + stream.m * begin, stream.m * c, stream.d_k()), key_decays(round.how.decay_on_key) {
    const Index m = stream.m, R = m * c, d_k = stream.d_k(), d_v = stream.d_v();
    x.X.resize(R, d_k), q.X = stream.Q.middleRows(begin, c).template cast<F>();
    Y.resize(R, d_k), V.resize(R, d_v), beta.resize(R);
    const Round<F> strength(round.how.beta, round.how.stretch);
    for (Index i = 0; i < R; ++i) {
      const MicroStep<double>& s = stream.steps[static_cast<std::size_t>(m * begin + i)];
      x.X.row(i) = s.x.transpose().cast<F>(), Y.row(i) = s.y.transpose().cast<F>();
      V.row(i) = s.v.transpose().cast<F>(), beta[i] = strength(static_cast<F>(s.beta));
      x.at.push_back(s.pre_decay ? i : i + 1), x.upto.push_back(i);
      if ((i + 1) % m == 0) q.at.push_back(i + 1), q.upto.push_back(i + 1);
    }
    x.X = round(Point::reads, x.X), q.X = round(Point::reads, q.X);
    Y = round(Point::writes, Y), V = round(Point::values, V), S = round(Point::state_read, state);

    M = scores(x, Y, decay, round);
    const Mat<F> L = beta.asDiagonal() * M;  // [R x R]  strictly lower
    T = L.template triangularView<Eigen::UnitLower>().solve(Mat<F>::Identity(R, R));
    if (round.how.one_solve) {
      E = V - from_state(x, round);
      Z = round(Point::inverse, T * beta.asDiagonal()) * round(Point::right_side, E);
    } else {
      P = beta.asDiagonal() * x.X;
      for (Index i = 0; i < R; ++i) decay.multiply(P.row(i), 0, x.at[static_cast<std::size_t>(i)]);
      P = round(Point::reads, P);
      const Mat<F> T_op = round(Point::inverse, T);
      W = round(Point::W, T_op * P);
      const Mat<F> U = round(Point::U, T_op * round(Point::values, beta.asDiagonal() * V));  // [R x d_v]
      Z = U - W * S.transpose();
    }
    A = round(Point::scores, scores(q, Y, decay, round));
  }

  /// What rows read from the state at the chunk's start: a scalar decay multiplies the product, one per channel the
  /// operand.
  Mat<F> from_state(const Reads<F>& r, const Rounding<F>& round) const {
    if (!decay.scalar()) return round(Point::reads, decayed(r)) * S.transpose();
    Vec<F> gamma(r.X.rows());
    for (Index i = 0; i < gamma.size(); ++i) gamma[i] = decay.number(0, r.at[static_cast<std::size_t>(i)]);
    return gamma.asDiagonal() * (r.X * S.transpose());
  }
  /// Whether the decay to the chunk's end goes into the write keys; else into the corrections.
  bool decay_on_key() const { return key_decays || !decay.scalar(); }
  /// The rows as they meet the state at the chunk's start.
  Mat<F> decayed(const Reads<F>& r) const {
    Mat<F> X = r.X;
    for (Index i = 0; i < X.rows(); ++i) decay.multiply(X.row(i), 0, r.at[static_cast<std::size_t>(i)]);
    return X;
  }
};

/// The chunk form of any rule with the roundings of a schedule.
/// \f[ T = (I + L)^{-1}, \quad Z = TB(V - \bar X S^\top), \quad S' = S\,\Phi + Z^\top Y_{out},
///     \quad O = Q_{in} S^\top + A Z \f]
/// \param stream  its Q without the read-out scale: the scale multiplies the sums, in F
/// Of two solves, Z = U~ - W S^T. \param watch  is shown the state at the start of each chunk, [d_v x d_k]
/// \formula{F84} \formula{C-one-solve}
template <class F>
Output<double> rounded_chunks(const Stream<double>& stream, double scale, const Schedule& how,
                              const std::function<void(const Mat<F>&)>& watch = nullptr) {
  const Rounding<F> round{how};
  Output<double> out{Mat<double>(stream.tokens(), stream.d_v()), {}};
  Mat<F> S = stream.S0.cast<F>();  // [d_v x d_k]
  for (Index begin = 0; begin < stream.tokens(); begin += how.C) {
    if (watch) watch(S);
    const Index c = std::min(how.C, stream.tokens() - begin), R = stream.m * c;
    const RoundedChunk<F> h(stream, begin, c, S, round);
    const Mat<F> O = (h.from_state(h.q, round) + h.A * round(Point::Z, h.Z)) * F(scale);  // [c x d_v]
    out.O.middleRows(begin, c) = O.template cast<double>();

    Mat<F> Z = h.Z, Y = h.Y;
    for (Index j = 0; j < R; ++j)
      h.decay_on_key() ? h.decay.multiply(Y.row(j), j + 1, R) : h.decay.multiply(Z.row(j), j + 1, R);
    for (Index v = 0; v < S.rows(); ++v) h.decay.multiply(S.row(v), 0, R);
    S = round(Point::state, S + round(Point::Z, Z).transpose() * round(Point::writes, Y));  // [d_v x d_k]
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

/// A decay as a kernel computes it: from an exp that is right to a unit in the last place. Where the gate hardly
/// changes it errs the same way in every token, and nothing averages out.
template <class F> Decay<F> computed_decay(const Decay<double>& d) {
  const F slip = 1 + std::numeric_limits<F>::epsilon();
  Decay<F> out;
  out.d = d.d.cast<F>().unaryExpr([&](F x) { return x == F(1) ? x : x * slip; });
  return out;
}

/// One micro-step in F.
template <class F> void recurrence_step(Mat<F>& S, const MicroStep<double>& s, const Round<F>& strength, Index first) {
  const Vec<F> x = s.x.cast<F>(), y = s.y.cast<F>(), v = s.v.cast<F>();
  Vec<F> prediction;
  if (s.pre_decay) prediction = product(S, x, first);
  computed_decay<F>(s.d).decay_columns(S);
  if (!s.pre_decay) prediction = product(S, x, first);
  S += (strength(static_cast<F>(s.beta)) * (v - prediction)) * y.transpose();
}

/// The recurrence in F; beta and, after every token, the state are rounded, nothing else is. \formula{F72}
template <class F> Output<double> rounded_recurrence(const Stream<double>& stream, double scale, const Schedule& how) {
  const Round<F> round_state(how.format(Point::state), how.stretch), strength(how.beta, how.stretch);
  Output<double> out{Mat<double>(stream.tokens(), stream.d_v()), {}};
  const auto first = static_cast<Index>((how.stretch - 1) * static_cast<double>(stream.d_k()));
  Mat<F> S = stream.S0.cast<F>();
  for (Index t = 0; t < stream.tokens(); ++t) {
    for (Index i = stream.m * t; i < stream.m * (t + 1); ++i)
      recurrence_step<F>(S, stream.steps[static_cast<std::size_t>(i)], strength, first);
    S = round_state(S);
    const Vec<F> o = product(S, Vec<F>(stream.Q.row(t).transpose().cast<F>()), first);
    out.O.row(t) = (o * F(scale)).transpose().template cast<double>();
  }
  out.S = S.template cast<double>();
  return out;
}

/// What a kernel of that schedule returns, in F, before it is stored. \param stream  its Q without the read-out scale
template <class F> Output<double> simulate(const Stream<double>& stream, double scale, const Schedule& how) {
  return how.C == 0 ? rounded_recurrence<F>(stream, scale, how) : rounded_chunks<F>(stream, scale, how);
}

}  // namespace delta
