// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "reference/core/micro_step.hpp"
#include "reference/forms/one_solve.hpp"

namespace delta {

/// \file
/// How a rule treats its own state: functions of a token's parameters, or of a whole sequence.
/// The derivations `contraction`, `exploding_state`, `channel_erase` and `inverse` prove what is
/// computed here.

/// What one token does to the error of its own sample: e_t = factor e~_t, factor = 1 - beta y .
/// x. The sample is tracked where |factor| < 1. \formula{F89}
template <Ring T> T contraction_factor(const MicroStep<T>& s) {
  return T(1) - s.beta * s.y.dot(s.x);
}

/// The norm of one token's transition S -> S A, when its decay is one number alpha and A = alpha (I - beta x y^T):
/// \f[ \sigma_{max}^2 = \alpha^2 \tfrac{1}{2}\bigl(s + \sqrt{s^2 - 4p}\bigr), \quad
///     s = 2 - 2 \beta a + \beta^2 |x|^2 |y|^2, \quad p = (1 - \beta a)^2, \quad a = x \cdot y \f]
/// The other singular values are alpha: with more than two channels the norm is at least alpha. \formula{D1}
inline double plane_step_norm(const MicroStep<double>& m) {
  const double a = m.x.dot(m.y), b = m.beta, alpha = std::abs(m.d[0]);
  if (m.x.size() == 1) return alpha * std::abs(1 - b * a);
  const double s = 2 - 2 * b * a + b * b * m.x.squaredNorm() * m.y.squaredNorm(),
               p = (1 - b * a) * (1 - b * a);
  const double plane = std::sqrt((s + std::sqrt(std::max(0., s * s - 4 * p))) / 2);
  return alpha * (m.x.size() > 2 ? std::max(1., plane) : plane);
}

/// The same for any decay and any reader, A = D - p y^T. Eigenvalues of A A^T above z are counted by inertia:
/// z I - A A^T is z I - D^2 less a matrix of rank two, and
/// \f[ \#\{\sigma^2 > z\} = \#\{d_i^2 > z\} + \nu(K) - 1, \quad K = -\begin{pmatrix} \sum p_i^2 r_i & 1 + \sum p_i d_i
///     y_i r_i \\ \cdot & z \sum y_i^2 r_i \end{pmatrix}, \quad r_i = \frac{1}{z - d_i^2}, \f]
/// nu(K) its number of negative eigenvalues. Bisection finds the largest z with one above it. \formula{D1}
inline double diagonal_step_norm(const MicroStep<double>& m) {
  const Vec<double> p = m.p(), d = m.d * Vec<double>::Ones(p.size());  // [d_k]
  const auto one_above = [&](double z) {
    double pp = 0, py = 0, yy = 0;
    Index above = 0;
    for (Index i = 0; i < d.size(); ++i) {
      const double r = 1 / (z - d[i] * d[i]);
      pp += p[i] * p[i] * r, py += p[i] * d[i] * m.y[i] * r, yy += m.y[i] * m.y[i] * r;
      above += d[i] * d[i] > z;
    }
    const double det = pp * z * yy - (1 + py) * (1 + py);
    const Index negative = det < 0 ? 1 : pp > 0 ? 2 : 0;
    return above + negative - 1 > 0;
  };
  const double most = d.cwiseAbs().maxCoeff() + p.norm() * m.y.norm();
  double low = 0,
         high = most * most * (1 + 1e-9);  // no midpoint falls on a d_i^2 of round numbers
  for (int i = 0; i < 100 && low < high; ++i) {
    const double z = (low + high) / 2;
    if (z == low || z == high) break;
    (one_above(z) ? low : high) = z;
  }
  return std::sqrt(high);
}

inline double step_norm(const MicroStep<double>& m) {
  return m.d.scalar() && !m.pre_decay ? plane_step_norm(m) : diagonal_step_norm(m);
}

/// Whether that norm is at most `bound`, decided without a root and so exactly over the
/// rationals: both roots of z^2 - s z + p lie at or below z = (bound / alpha)^2, and so does 1
/// where the key space has more than two channels.
template <Real T> bool step_norm_at_most(const MicroStep<T>& m, const T& bound) {
  const T alpha = m.d[0], a = m.x.dot(m.y), b = m.beta;
  const T s = T(2) - T(2) * b * a + b * b * m.x.dot(m.x) * m.y.dot(m.y),
          p = (T(1) - b * a) * (T(1) - b * a);
  const T A2 = alpha * alpha,
          z = bound *
              bound;  // sigma^2 <= z  <=>  z^2 - s A2 z + p A2^2 >= 0, right of the vertex
  const bool plane = !(z * z - s * A2 * z + p * A2 * A2 < T(0)) && !(T(2) * z < s * A2);
  return plane && (m.x.size() <= 2 || !(z < A2));
}

/// The largest norm of a Q-Delta transition I - beta (k + lambda q) k^T over all unit q and k. For 0 < beta <= 1 and
/// |lambda| <= 1 it is G = sqrt(1 + beta lambda^2 / (2 - beta)), reached at k . q = -lambda (1 - beta) / (2 - beta).
/// Where that is no cosine, the worst q is parallel to k. Keys of another length are beta |k|^2 and lambda |q| / |k|.
/// \formula{D1}
inline double sharp_growth(double beta, double lambda) {
  if (beta < 2 && std::abs(lambda * (1 - beta)) <= 2 - beta)
    return std::sqrt(1 + beta * lambda * lambda / (2 - beta));
  return std::max({1., std::abs(1 - beta * (1 + lambda)), std::abs(1 - beta * (1 - lambda))});
}

/// The certificate of a sequence: no state can grow where every token's bound is at most one. The bounds are alpha G,
/// which holds for all unit vectors, or the norms of the tokens' own transitions, which hold for theirs.
struct Certificate {
  bool holds = true;         ///< at every token
  std::size_t fails_at = 0;  ///< else the first token beyond one
  std::size_t worst = 0;     ///< the token with the largest bound
  double largest = 0;        ///< that bound
  double product = 1;  ///< an upper bound on the growth of the state over the whole sequence
};

inline Certificate certificate(const std::vector<double>& bounds) {
  Certificate c;
  for (std::size_t t = 0; t < bounds.size(); ++t) {
    if (bounds[t] > c.largest) c.largest = bounds[t], c.worst = t;
    // The norms are computed to some 1e-14; a bound that is no number certifies nothing.
    if (c.holds && !(bounds[t] <= 1 + 1e-12)) c.holds = false, c.fails_at = t;
    c.product *= bounds[t];
  }
  return c;
}

/// alpha_t G(beta_t, lambda_t), token by token.
inline std::vector<double> sharp_bounds(const std::vector<double>& alpha,
                                        const std::vector<double>& beta,
                                        const std::vector<double>& lambda) {
  std::vector<double> bounds;
  for (std::size_t t = 0; t < alpha.size(); ++t)
    bounds.push_back(alpha[t] * sharp_growth(beta[t], lambda[t]));
  return bounds;
}

/// The largest singular value.
inline double spectral_norm(const Mat<double>& A) {
  if (A.size() == 0) return 0;
  const Eigen::SelfAdjointEigenSolver<Mat<double>> gram(A.transpose() * A,
                                                        Eigen::EigenvaluesOnly);
  return std::sqrt(std::max(0., gram.eigenvalues().maxCoeff()));
}

/// P <- P times the transition of one step, whatever its decay and whenever it reads. P may be a matrix or a row.
inline void transit(Mat<double>& P, const MicroStep<double>& s) {
  const Vec<double> read = P * s.p();
  s.d.decay_columns(P);
  P -= read * s.y.transpose();
}

/// The growth of the state over a sequence, as it happened: the norm of the product of its transitions.
inline double sequence_growth(const Steps<double>& steps) {
  if (steps.empty()) return 1;
  const Index d_k = steps.front().x.size();
  Mat<double> P = Mat<double>::Identity(d_k, d_k);
  for (const MicroStep<double>& s : steps) transit(P, s);
  return spectral_norm(P);
}

/// The worst that unit vectors can do to the state in the plane, token by token, found by search
/// over the key's angle (the best query opposes the state). Returns the growth per token; at most
/// alpha sharp_growth(beta, lambda).
inline double worst_growth(double alpha, double beta, double lambda, int angles = 3600) {
  double best = 0;
  for (int i = 0; i < angles; ++i) {
    const double c = std::cos(2 * M_PI * i / angles);  // k . s for a state of length one
    for (const double against : {-1., 1.}) {           // q = -s or s
      const double read = c + lambda * against,
                   length2 = 1 - 2 * beta * read * c + beta * beta * read * read;
      best = std::max(best, std::sqrt(std::max(0., length2)));
    }
  }
  return alpha * best;
}

/// The worst order of given steps, found by a beam search: they may be repeated as often as one likes, and the
/// sequences that enlarge a state most are kept. Returns the growth per step over the second half of the rounds, which
/// some state does reach: no true certificate of these steps lies below it.
/// \param most  only so many steps, those of the largest norm, are tried
inline double worst_order(const Steps<double>& steps, int rounds = 64, std::size_t most = 32) {
  if (steps.empty()) return 0;
  std::vector<std::pair<double, const MicroStep<double>*>> ranked;
  for (const MicroStep<double>& s : steps) ranked.emplace_back(step_norm(s), &s);
  std::ranges::stable_sort(ranked,
                           [](const auto& a, const auto& b) { return a.first > b.first; });
  ranked.resize(std::min(ranked.size(), most));

  std::vector<Mat<double>>
      beam;  // of rows [1 x d_k], the longest first: to begin with, what one step enlarges most
  for (std::size_t i = 0; i < std::min<std::size_t>(ranked.size(), 8); ++i) {
    Mat<double> A = Mat<double>::Identity(steps[0].x.size(), steps[0].x.size());
    transit(A, *ranked[i].second);
    const Eigen::SelfAdjointEigenSolver<Mat<double>> gram(A * A.transpose());
    beam.push_back(gram.eigenvectors().rightCols(1).transpose());
  }
  double log_growth = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Mat<double>> next;
    for (const Mat<double>& S : beam)
      for (const auto& [norm, step] : ranked) transit(next.emplace_back(S), *step);
    std::ranges::sort(
        next, [](const auto& a, const auto& b) { return a.squaredNorm() > b.squaredNorm(); });
    next.resize(std::min(next.size(), most));
    const double longest = next[0].norm();
    if (!(longest > 0) || !std::isfinite(longest)) return longest;
    for (Mat<double>& S : next) S /= longest;
    if (round >= rounds / 2) log_growth += std::log(longest);
    beam = std::move(next);
  }
  return std::exp(log_growth / (rounds - rounds / 2));
}

/// What a solve with I + L amplifies.
struct InverseGrowth {
  double largest_entry = 0;  ///< of (I + L)^{-1}, below the diagonal; at most beta_i for unit
                             ///< keys and beta in [0, 2]
  double condition = 1;      ///< of I + L, in the spectral norm
};

/// \formula{D4}
inline InverseGrowth inverse_growth(const Mat<double>& L) {
  const Index n = L.rows();
  const Mat<double> I = Mat<double>::Identity(n, n), inverse = solve_unit_lower<double>(L, I);
  InverseGrowth g;
  if (n > 1) g.largest_entry = strictly_lower<double>(inverse).cwiseAbs().maxCoeff();
  if (n > 0) g.condition = spectral_norm(I + strictly_lower<double>(L)) * spectral_norm(inverse);
  return g;
}

/// One sequence of one head, of any rule, step by step and chunk by chunk.
struct StreamAnalysis {
  std::vector<double> factor;          ///< 1 - beta y . x of each micro-step
  std::vector<double> norm;            ///< of its transition
  std::vector<InverseGrowth> inverse;  ///< of each chunk
  double growth = 1;  ///< the norm of the product of the transitions: what did happen
  double search = 0;  ///< growth per step in the worst order of these steps
};

/// \param C  tokens per chunk, for what the solve with I + L amplifies
inline StreamAnalysis analyse(const Stream<double>& stream, Index C) {
  StreamAnalysis a;
  for (const MicroStep<double>& s : stream.steps) {
    a.factor.push_back(contraction_factor(s));
    a.norm.push_back(step_norm(s));
  }
  a.growth = sequence_growth(stream.steps);
  a.search = worst_order(stream.steps);
  one_solve<double>(stream, C, [&](const OneSolve<double>& chunk) {
    a.inverse.push_back(inverse_growth(chunk.L));
  });
  return a;
}

}  // namespace delta
