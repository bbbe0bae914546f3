// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
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

/// The square of the norm of one token's transition, S -> S D (I - beta x y^T), when its decay is
/// one number alpha: \f[ \sigma_{max}^2 = \alpha^2 \tfrac{1}{2}\bigl(s + \sqrt{s^2 - 4p}\bigr),
/// \quad
///     s = 2 - 2 \beta a + \beta^2 |x|^2 |y|^2, \quad p = (1 - \beta a)^2, \quad a = x \cdot y
///     \f]
/// The other singular values are alpha, or between it and the smallest: where s < 2 the norm is
/// alpha.
inline double step_norm(const MicroStep<double>& m) {
  const double a = m.x.dot(m.y), b = m.beta, alpha = std::abs(m.d[0]);
  const double s = 2 - 2 * b * a + b * b * m.x.squaredNorm() * m.y.squaredNorm(),
               p = (1 - b * a) * (1 - b * a);
  const double plane = std::sqrt((s + std::sqrt(std::max(0., s * s - 4 * p))) / 2);
  return alpha * (m.x.size() > 2 ? std::max(1., plane) : plane);
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

/// The largest norm of a Q-Delta transition over all unit q and k, 0 < beta <= 1: G = sqrt(1 +
/// beta lambda^2 / (2 - beta)). Where alpha G <= 1 for every token, no sequence of unit vectors
/// can enlarge the state.
inline double sharp_growth(double beta, double lambda) {
  return std::sqrt(1 + beta * lambda * lambda / (2 - beta));
}

/// The certificate of a sequence.
struct Certificate {
  bool holds = true;      ///< alpha_t G(beta_t, lambda_t) <= 1 at every token
  std::size_t worst = 0;  ///< the token with the largest alpha G
  double largest = 0;     ///< that alpha G
  double product = 1;     ///< an upper bound on the growth of the state over the whole sequence
};

inline Certificate certificate(const std::vector<double>& alpha, const std::vector<double>& beta,
                               const std::vector<double>& lambda) {
  Certificate c;
  for (std::size_t t = 0; t < alpha.size(); ++t) {
    const double G = alpha[t] * sharp_growth(beta[t], lambda[t]);
    if (G > c.largest) c.largest = G, c.worst = t;
    c.holds = c.holds && G <= 1;
    c.product *= G;
  }
  return c;
}

/// P <- P times the transition of one step, whatever its decay and whenever it reads.
inline void transit(Mat<double>& P, const MicroStep<double>& s) {
  const Vec<double> p = s.p();  // [d_k]
  const Vec<double> read = P * p;
  s.d.decay_columns(P);
  P -= read * s.y.transpose();
}

/// The growth of the state over a sequence, as it happened: the norm of the product of its transitions.
inline double sequence_growth(const std::vector<MicroStep<double>>& steps) {
  if (steps.empty()) return 1;
  const Index d_k = steps.front().x.size();
  Mat<double> P = Mat<double>::Identity(d_k, d_k);
  for (const MicroStep<double>& s : steps) transit(P, s);
  return Eigen::JacobiSVD<Mat<double>>(P).singularValues()(0);
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

/// What a solve with I + L amplifies.
struct InverseGrowth {
  double largest_entry = 0;  ///< of (I + L)^{-1}, below the diagonal; at most beta_i for unit
                             ///< keys and beta in [0, 2]
  double condition = 1;      ///< of I + L, in the spectral norm
};

inline InverseGrowth inverse_growth(const Mat<double>& L) {
  const Index n = L.rows();
  const Mat<double> A = Mat<double>::Identity(n, n) + strictly_lower<double>(L);
  const Mat<double> X = solve_unit_lower<double>(L, Mat<double>::Identity(n, n));
  InverseGrowth g;
  if (n > 1) g.largest_entry = strictly_lower<double>(X).cwiseAbs().maxCoeff();
  const Eigen::VectorXd sigma = Eigen::JacobiSVD<Mat<double>>(A).singularValues();
  g.condition = n ? sigma(0) / sigma(n - 1) : 1;
  return g;
}

/// All of it for one sequence of one head, of any rule.
struct StreamAnalysis {
  double least_factor = 1, largest_factor = 1;  ///< of 1 - beta y . x over the micro-steps
  double largest_norm = 0;                      ///< of one micro-step's transition
  Index worst_step = 0;                         ///< where
  double product = 1;     ///< of those norms: an upper bound on the growth of any state
  double growth = 1;      ///< the norm of the product of the transitions: what did happen
  InverseGrowth inverse;  ///< the worst chunk
};

/// \param C  tokens per chunk, for what the solve with I + L amplifies
inline StreamAnalysis analyse(const Stream<double>& stream, Index C) {
  StreamAnalysis a;
  for (std::size_t i = 0; i < stream.steps.size(); ++i) {
    const MicroStep<double>& s = stream.steps[i];
    const double factor = contraction_factor(s);
    a.least_factor = i ? std::min(a.least_factor, factor) : factor;
    a.largest_factor = i ? std::max(a.largest_factor, factor) : factor;
    const double norm = s.d.scalar() && !s.pre_decay ? step_norm(s) : sequence_growth({s});
    if (norm > a.largest_norm) a.largest_norm = norm, a.worst_step = static_cast<Index>(i);
    a.product *= norm;
  }
  a.growth = sequence_growth(stream.steps);
  one_solve<double>(stream, C, [&](const OneSolve<double>& chunk) {
    const InverseGrowth g = inverse_growth(chunk.L);
    a.inverse.largest_entry = std::max(a.inverse.largest_entry, g.largest_entry);
    a.inverse.condition = std::max(a.inverse.condition, g.condition);
  });
  return a;
}

}  // namespace delta
