// SPDX-License-Identifier: Apache-2.0
// Correct kernels as other people build them. They share no line with the model of roundings that predicts their
// errors.
#pragma once
#include <cmath>

#include "reference/core/micro_step.hpp"
#include "reference/core/random.hpp"
#include "reference/scalars/rounded.hpp"

namespace delta::kernels {

/// How a recurrent kernel is built: all in fp32, a state that lives in registers.
struct Recurrent {
  bool ulp_off = false;      ///< decays from an exp that is a unit in the last place off
  bool fused = false;        ///< multiply-adds rounded once
  bool beta_early = false;   ///< beta v - beta S x
  bool backwards = false;    ///< sums from the last channel on
  bool scale_query = false;  ///< the scale goes into q before the sum

  float sum(const Mat<float>& S, Index row, const Vec<double>& x) const {
    float s = 0;
    for (Index i = 0; i < x.size(); ++i) {
      const Index c = backwards ? x.size() - 1 - i : i;
      const auto xc = static_cast<float>(x[c]);
      s = fused ? std::fmaf(S(row, c), xc, s) : s + S(row, c) * xc;
    }
    return s;
  }
  float decay(double d) const {
    const auto x = static_cast<float>(d);
    return ulp_off && d > 0 && d < 1 ? std::nextafter(x, 0.f) : x;
  }

  Output<double> operator()(const Stream<double>& st, double scale) const {
    Output<double> out{Mat<double>(st.tokens(), st.d_v()), {}};
    Mat<float> S = st.S0.cast<float>();
    for (Index t = 0; t < st.tokens(); ++t) {
      for (Index i = st.m * t; i < st.m * (t + 1); ++i) {
        const MicroStep<double>& s = st.steps[static_cast<std::size_t>(i)];
        Vec<float> read(st.d_v());
        const auto predict = [&] {
          for (Index r = 0; r < st.d_v(); ++r) read[r] = sum(S, r, s.x);
        };
        if (s.pre_decay) predict();
        for (Index c = 0; c < st.d_k() && !s.d.none(); ++c) S.col(c) *= decay(s.d[c]);
        if (!s.pre_decay) predict();
        const auto beta = static_cast<float>(s.beta);
        for (Index r = 0; r < st.d_v(); ++r) {
          const auto v = static_cast<float>(s.v[r]);
          const float e = beta_early ? beta * v - beta * read[r] : beta * (v - read[r]);
          for (Index c = 0; c < st.d_k(); ++c) {
            const auto y = static_cast<float>(s.y[c]);
            S(r, c) = fused ? std::fmaf(e, y, S(r, c)) : S(r, c) + e * y;
          }
        }
      }
      Vec<double> q = st.Q.row(t).transpose();
      if (scale_query) q = (q * scale).unaryExpr([](double x) { return static_cast<double>(static_cast<float>(x)); });
      for (Index r = 0; r < st.d_v(); ++r)
        out.O(t, r) = scale_query ? sum(S, r, q) : static_cast<float>(scale) * sum(S, r, q);
    }
    out.S = S.cast<double>();
    return out;
  }
};

enum class Solve { substitution, inverse, two_inverses };

/// How a chunk kernel is built: sums in fp32, operands of its products in a narrower format.
struct Chunked {
  Format f = kBf16, inverse = kFp32;
  Index C = 64, sub = 16;
  Solve solve = Solve::inverse;
  bool blocks = false;           ///< the inverse is put together from blocks of 16, by products of tf32
  bool decay_on_y = false;       ///< the decay to the chunk's end goes into the key, not into the correction
  bool decay_on_q = false;       ///< the decay since the chunk's start goes into the operand, not into the product
  bool beta_in_inverse = false;  ///< T diag(beta) is the operand
  bool logarithms = true;        ///< decays from differences of running sums of their logarithms, not from products

  static Mat<float> in(const Format& f, Mat<float> A) {
    for (float& x : A.reshaped()) x = static_cast<float>(f.round(static_cast<double>(x)));
    return A;
  }
  Mat<float> operand(Mat<float> A) const { return in(f, std::move(A)); }

  /// (I + L)^-1, halved until it is small
  Mat<float> inverted(const Mat<float>& L) const {
    const Index n = L.rows();
    if (!blocks || n <= 16) {
      Mat<float> T = Mat<float>::Identity(n, n);
      for (Index i = 1; i < n; ++i) T.row(i).head(i) = -L.row(i).head(i) * T.topLeftCorner(i, i);
      return T;
    }
    const Index h = (n / 2 + 15) / 16 * 16, k = n - h;
    Mat<float> T = Mat<float>::Zero(n, n);
    const Mat<float> A = inverted(L.topLeftCorner(h, h)), B = inverted(L.bottomRightCorner(k, k));
    T.topLeftCorner(h, h) = A, T.bottomRightCorner(k, k) = B;
    const Mat<float> left = in(kTf32, B) * in(kTf32, L.bottomLeftCorner(k, h));
    T.bottomLeftCorner(k, h) = -in(kTf32, left) * in(kTf32, A);
    return T;
  }

  Output<double> operator()(const Stream<double>& st, double scale) const {
    const Index m = st.m, d_k = st.d_k(), d_v = st.d_v();
    Output<double> out{Mat<double>(st.tokens(), d_v), {}};
    Mat<float> S = st.S0.cast<float>();
    for (Index begin = 0; begin < st.tokens(); begin += C) {
      const Index c = std::min(C, st.tokens() - begin), R = m * c;
      Mat<float> X(R, d_k), Y(R, d_k), V(R, d_v), D = Mat<float>::Ones(R, d_k);
      Vec<float> beta(R);
      std::vector<Index> place;  // decays seen by row i
      bool per_channel = false;
      for (Index i = 0; i < R; ++i) {
        const MicroStep<double>& s = st.steps[static_cast<std::size_t>(m * begin + i)];
        X.row(i) = s.x.transpose().cast<float>(), Y.row(i) = s.y.transpose().cast<float>();
        V.row(i) = s.v.transpose().cast<float>(), beta[i] = static_cast<float>(s.beta);
        for (Index k = 0; k < d_k; ++k) D(i, k) = static_cast<float>(s.d[k]);
        per_channel = per_channel || !s.d.scalar();
        place.push_back(s.pre_decay ? i : i + 1);
      }
      X = operand(X), Y = operand(Y), V = operand(V);
      const Mat<float> Q = operand(st.Q.middleRows(begin, c).cast<float>()), S_op = operand(S);
      // The product of the decays a, a + 1, ..., b - 1.
      Mat<float> G = Mat<float>::Zero(R + 1, d_k);
      for (Index i = 0; i < R; ++i)
        for (Index k = 0; k < d_k; ++k) G(i + 1, k) = G(i, k) + (D(i, k) > 0 ? std::log(D(i, k)) : 0);
      const auto between = [&](Index a, Index b) {
        if (logarithms && (D.middleRows(a, b - a).array() > 0).all())
          return Eigen::Array<float, 1, Eigen::Dynamic>((G.row(b) - G.row(a)).array().exp());
        Eigen::Array<float, 1, Eigen::Dynamic> p = Eigen::Array<float, 1, Eigen::Dynamic>::Ones(d_k);
        for (Index i = a; i < b; ++i) p *= D.row(i).array();
        return p;
      };
      // Row i of A at place at(i), against the keys j < seen(i).
      const auto scores = [&](const Mat<float>& A, auto at, auto seen) {
        Mat<float> M = Mat<float>::Zero(A.rows(), R);
        for (Index i = 0; i < A.rows(); ++i) {
          const Index first = seen(i) / sub * sub;
          Mat<float> left = (A.row(i).array() * between(first, at(i))).matrix();
          if (per_channel) left = operand(left);
          for (Index j = 0; j < seen(i); ++j) {
            if (!per_channel) {
              M(i, j) = A.row(i).dot(Y.row(j)) * between(j + 1, at(i))[0];
            } else if (j < first) {
              const Mat<float> right = operand((Y.row(j).array() * between(j + 1, first)).matrix());
              M(i, j) = left.row(0).dot(right.row(0));
            } else {
              M(i, j) = (A.row(i).array() * Y.row(j).array() * between(j + 1, at(i))).sum();
            }
          }
        }
        return M;
      };
      const auto x_at = [&](Index i) { return place[static_cast<std::size_t>(i)]; };
      const auto q_at = [&](Index t) { return m * (t + 1); };
      const auto decayed = [&](Mat<float> A, auto at) {
        for (Index i = 0; i < A.rows(); ++i) A.row(i).array() *= between(0, at(i));
        return A;
      };
      const auto read = [&](const Mat<float>& A, auto at) {  // [n x d_v]
        if (per_channel || decay_on_q) return Mat<float>(operand(decayed(A, at)) * S_op.transpose());
        Mat<float> AS = A * S_op.transpose();
        for (Index i = 0; i < A.rows(); ++i) AS.row(i) *= between(0, at(i))[0];
        return AS;
      };

      const Mat<float> L = beta.asDiagonal() * scores(X, x_at, [](Index i) { return i; });  // [R x R]
      Mat<float> Z;                                                                         // [R x d_v]
      if (solve == Solve::substitution) {
        Z = beta.asDiagonal() * (V - read(X, x_at));
        for (Index i = 1; i < R; ++i) Z.row(i) -= L.row(i).head(i) * Z.topRows(i);
      } else if (solve == Solve::inverse) {
        const Mat<float> E = V - read(X, x_at);
        Z = beta_in_inverse ? Mat<float>(in(inverse, inverted(L) * beta.asDiagonal()) * operand(E))
                            : Mat<float>(in(inverse, inverted(L)) * operand(beta.asDiagonal() * E));
      } else {
        const Mat<float> T = in(inverse, inverted(L));
        const Mat<float> W = operand(T * operand(beta.asDiagonal() * decayed(X, x_at)));  // [R x d_k]
        const Mat<float> U = operand(T * operand(beta.asDiagonal() * V));                 // [R x d_v]
        Z = U - W * S_op.transpose();
      }
      const Mat<float> A = operand(scores(Q, q_at, q_at));  // [c x R]
      out.O.middleRows(begin, c) = (static_cast<float>(scale) * (read(Q, q_at) + A * operand(Z))).cast<double>();
      Mat<float> Z_out = Z, Y_out = Y;
      for (Index j = 0; j < R; ++j)
        if (per_channel || decay_on_y)
          Y_out.row(j).array() *= between(j + 1, R);
        else
          Z_out.row(j) *= between(j + 1, R)[0];
      for (Index v = 0; v < d_v; ++v) S.row(v).array() *= between(0, R);
      S += operand(Z_out).transpose() * operand(Y_out);
    }
    out.S = S.cast<double>();
    return out;
  }
};

inline Recurrent any_recurrent(Random& r) {
  const auto flip = [&] { return r.below(2) == 1; };
  return {flip(), flip(), flip(), flip(), flip()};
}

inline Chunked any_chunked(const Format& f, Random& r) {
  const auto flip = [&] { return r.below(2) == 1; };
  constexpr Index lengths[] = {16, 32, 64, 128};
  const Format inverses[] = {kFp32, f.p < kFp32.p ? kTf32 : kFp32, f, f};
  return {.f = f,
          .inverse = inverses[r.below(4)],
          .C = lengths[r.below(4)],
          .sub = flip() ? 16 : 8,
          .solve = static_cast<Solve>(r.below(3)),
          .blocks = flip() && f.p < kFp32.p,
          .decay_on_y = flip(),
          .decay_on_q = flip(),
          .beta_in_inverse = flip(),
          .logarithms = flip()};
}

}  // namespace delta::kernels
