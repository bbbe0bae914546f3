// SPDX-License-Identifier: Apache-2.0
// What a kernel makes of the gradients in its precision: the adjoints with a rounding at every place where a kernel
// rounds. Like the forms in rounded_chunk.hpp they predict errors; they are no judges of values.
#pragma once
#include <vector>

#include "checks/verify/rounded_chunk.hpp"
#include "reference/gradient/recurrent_adjoint.hpp"

namespace delta {

/// The adjoint of `scores`: from D [n x R], read where j < upto[i], what it adds to the gradients of X and of Y.
template <class F>
void pull_scores(const Mat<F>& D, const Reads<F>& r, const Mat<F>& Y, const ChunkDecay<F>& decay,
                 const Rounding<F>& round, Mat<F>& dX, Mat<F>& dY) {
  const auto n = static_cast<Index>(r.at.size());
  const auto upto = [&](Index i) { return r.upto[static_cast<std::size_t>(i)]; };
  const auto at = [&](Index i) { return r.at[static_cast<std::size_t>(i)]; };
  if (decay.scalar()) {
    Mat<F> A = Mat<F>::Zero(n, Y.rows());
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < upto(i); ++j) A(i, j) = D(i, j) * decay.number(j + 1, at(i));
    A = round(Point::scores, A);
    dX += A * Y;
    dY += A.transpose() * r.X;
    return;
  }
  for (Index first = 0; first < n;) {
    const Index start = upto(first) / kSubChunk * kSubChunk;
    Index last = first;
    while (last < n && upto(last) / kSubChunk * kSubChunk == start) ++last;
    if (start > 0) {
      Mat<F> left = r.X.middleRows(first, last - first), right = Y.topRows(start);
      for (Index i = first; i < last; ++i) decay.multiply(left.row(i - first), start, at(i));
      for (Index j = 0; j < start; ++j) decay.multiply(right.row(j), j + 1, start);
      const Mat<F> A = round(Point::scores, D.block(first, 0, last - first, start));
      Mat<F> d_left = A * round(Point::writes, right), d_right = A.transpose() * round(Point::reads, left);
      for (Index i = first; i < last; ++i) decay.multiply(d_left.row(i - first), start, at(i));
      for (Index j = 0; j < start; ++j) decay.multiply(d_right.row(j), j + 1, start);
      dX.middleRows(first, last - first) += d_left, dY.topRows(start) += d_right;
    }
    for (Index i = first; i < last; ++i)
      for (Index j = start; j < upto(i); ++j) {
        const typename ChunkDecay<F>::Row a = D(i, j) * decay.between(j + 1, at(i));  // [1 x d_k]
        dX.row(i).array() += a * Y.row(j).array();
        dY.row(j).array() += a * r.X.row(i).array();
      }
    first = last;
  }
}

/// The gradients of one chunk, in F, as a kernel of one or of two solves computes them. With G for the gradient with
/// respect to the state at the chunk's end and dR for that with respect to the right-hand side of the solve,
/// \f[ dZ = A^\top dO + Y_{out} G^\top, \qquad dR = T^\top dZ, \qquad dL = -\mathrm{sl}(dR\,Z^\top) \f]
/// and of two solves, which go by their inverse,
/// \f[ dT = dZ\,(BV)^\top + dW\,P^\top, \qquad dW = -dZ\,S, \qquad dL = -\mathrm{sl}(T^\top dT\,T^\top). \f]
/// Decays are differentiated by their logarithms: a product of decays between two places adds its share at the second
/// and takes it away at the first, and what is summed from the end is the gradient of each.
template <class F> class ChunkAdjoint {
 public:
  Mat<F> dX, dY, dV, dQ;  ///< [R x d_k], [R x d_k], [R x d_v], [c x d_k]
  Vec<F> d_beta;          ///< [R]
  Mat<F> d_log;           ///< [R x 1 or d_k] with respect to ln d
  Mat<F> dS;              ///< [d_v x d_k] at the chunk's start

  /// \param G  [d_v x d_k] with respect to the state at the chunk's end   \param dO  [c x d_v], not yet scaled
  ChunkAdjoint(const RoundedChunk<F>& h, const Mat<F>& G, const Mat<F>& dO, F scale, const Rounding<F>& round) {
    const Index R = h.Y.rows(), c = dO.rows(), d_k = G.cols();
    const Mat<F> G_op = round(Point::state_read, G), Z_op = round(Point::Z, h.Z);

    // What reaches Z from the outputs and from the state at the end, where Z and Y meet: z_j (Phi_{j..R} y_j)^T.
    Mat<F> Y_out = h.Y, Z_out = h.Z;
    for (Index j = 0; j < R; ++j)
      h.decay_on_key() ? h.decay.multiply(Y_out.row(j), j + 1, R) : h.decay.multiply(Z_out.row(j), j + 1, R);
    Mat<F> dZ = round(Point::writes, Y_out) * G_op.transpose(), dY_out = round(Point::Z, Z_out) * G_op;
    for (Index j = 0; j < R; ++j)
      h.decay_on_key() ? h.decay.multiply(dY_out.row(j), j + 1, R) : h.decay.multiply(dZ.row(j), j + 1, R);
    dZ += scale * (h.A.transpose() * dO);
    dZ = round(Point::Z, dZ);  // [R x d_v]

    dS = scale * (dO.transpose() * round(Point::reads, h.decayed(h.q)));
    Mat<F> kept = G;
    for (Index v = 0; v < kept.rows(); ++v) h.decay.multiply(kept.row(v), 0, R);
    dS += kept;

    Mat<F> dL, d_read;  // [R x R], [R x d_k] of Phi x, which reads the state
    if (round.how.one_solve) {
      const Mat<F> dR = round(Point::right_side, round(Point::inverse, h.T).transpose() * dZ);  // [R x d_v]
      const Mat<F> dE = round(Point::right_side, h.beta.asDiagonal() * dR);                     // [R x d_v]
      dL = -dR * Z_op.transpose();
      d_beta = dR.cwiseProduct(h.E).rowwise().sum();
      dV = dE;
      d_read = -dE * h.S;
      dS -= dE.transpose() * round(Point::reads, h.decayed(h.x));
    } else {
      const Mat<F> T = round(Point::inverse, h.T), BV = round(Point::values, h.beta.asDiagonal() * h.V);
      const Mat<F> dW = round(Point::W, -dZ * h.S);                                         // [R x d_k]
      const Mat<F> dT = round(Point::inverse, dZ * BV.transpose() + dW * h.P.transpose());  // [R x R]
      dL = -round(Point::inverse, T.transpose() * dT) * T.transpose();
      const Mat<F> dBV = T.transpose() * dZ, dP = T.transpose() * dW;  // [R x d_v], [R x d_k]
      dV = h.beta.asDiagonal() * dBV;
      d_read = h.beta.asDiagonal() * dP;
      d_beta = dBV.cwiseProduct(h.V).rowwise().sum() + dP.cwiseProduct(h.decayed(h.x)).rowwise().sum();
      dS -= dZ.transpose() * h.W;
    }
    dL = strictly_lower<F>(dL);
    d_beta += dL.cwiseProduct(h.M).rowwise().sum();

    dX.setZero(R, d_k), dY.setZero(R, d_k), dQ.setZero(c, d_k);
    pull_scores<F>(h.beta.asDiagonal() * dL, h.x, h.Y, h.decay, round, dX, dY);
    pull_scores<F>(scale * (dO * Z_op.transpose()), h.q, h.Y, h.decay, round, dQ, dY);
    Mat<F> d_query = scale * (dO * h.S);
    for (Index i = 0; i < R; ++i) h.decay.multiply(d_read.row(i), 0, h.x.at[static_cast<std::size_t>(i)]);
    for (Index t = 0; t < c; ++t) h.decay.multiply(d_query.row(t), 0, h.q.at[static_cast<std::size_t>(t)]);
    dX += d_read, dQ += d_query, dY += dY_out;

    Mat<F> place = Mat<F>::Zero(R + 1, d_k);  // shares of the logarithms' running sums
    for (Index i = 0; i < R; ++i) {
      place.row(h.x.at[static_cast<std::size_t>(i)]) += h.x.X.row(i).cwiseProduct(dX.row(i));
      place.row(i + 1) -= h.Y.row(i).cwiseProduct(dY.row(i));
      place.row(R) += h.Y.row(i).cwiseProduct(dY_out.row(i));
    }
    for (Index t = 0; t < c; ++t)
      place.row(h.q.at[static_cast<std::size_t>(t)]) += h.q.X.row(t).cwiseProduct(dQ.row(t));
    // What the whole state adds to every decay of the chunk: kernels read both factors from memory, as operands.
    Mat<F> G_start = G_op;
    for (Index v = 0; v < G_start.rows(); ++v) h.decay.multiply(G_start.row(v), 0, R);
    place.row(R) += h.S.cwiseProduct(G_start).colwise().sum();
    const Mat<F> shares = h.decay.scalar() ? Mat<F>(place.rowwise().sum()) : place;
    d_log.resize(R, shares.cols());
    for (Index i = R - 1; i >= 0; --i)
      d_log.row(i) = i + 1 < R ? Mat<F>(d_log.row(i + 1) + shares.row(i + 1)) : Mat<F>(shares.row(R));

    if (!round.how.one_solve) dX = round(Point::reads, dX), dY = round(Point::writes, dY);  // added up in two kernels
  }
};

/// The gradient of sum <dO, O> + <dS, S> with respect to a stream, through chunks with the roundings of a schedule.
/// \param stream  its Q without the read-out scale
template <class F>
StreamAdjoint<double> rounded_chunk_adjoint(const Stream<double>& stream, double scale, const Mat<double>& dO,
                                            const Mat<double>& dS, const Schedule& how) {
  const Index m = stream.m, tokens = stream.tokens();
  const Rounding<F> round{how};
  StreamAdjoint<double> g{
      .steps = Steps<double>(stream.steps.size()), .Q = Mat<double>(tokens, stream.d_k()), .S0 = {}, .m = m};
  std::vector<Mat<F>> states;  // at the start of each chunk
  rounded_chunks<F>(stream, scale, how, [&](const Mat<F>& S) { states.push_back(S); });
  Mat<F> G = dS.cast<F>();
  for (auto n = static_cast<Index>(states.size()) - 1; n >= 0; --n) {
    const Mat<F>& S = states[static_cast<std::size_t>(n)];
    const Index begin = n * how.C, c = std::min(how.C, tokens - begin);
    const RoundedChunk<F> h(stream, begin, c, S, round);
    const ChunkAdjoint<F> a(h, G, dO.middleRows(begin, c).template cast<F>(), F(scale), round);
    for (Index i = 0; i < m * c; ++i) {
      const MicroStep<double>& s = stream.steps[static_cast<std::size_t>(m * begin + i)];
      MicroStep<double>& d = g.steps[static_cast<std::size_t>(m * begin + i)];
      d.x = a.dX.row(i).transpose().template cast<double>(), d.y = a.dY.row(i).transpose().template cast<double>();
      d.v = a.dV.row(i).transpose().template cast<double>(), d.beta = a.d_beta[i];
      if (s.d.none()) continue;
      // d ln d = d d / d; a decay of zero has no logarithm to differentiate by, and none is asked for there.
      const Vec<double> log = a.d_log.row(i).transpose().template cast<double>();
      const auto over = [](double x, double y) { return y == 0 ? 0 : x / y; };
      d.d = s.d.scalar() ? Decay<double>(over(log.sum(), s.d.d[0]))
                         : Decay<double>(Vec<double>(log.binaryExpr(s.d.d, over)));
    }
    g.Q.middleRows(begin, c) = a.dQ.template cast<double>();
    G = a.dS;
  }
  g.S0 = G.template cast<double>();
  return g;
}

/// S^T x as a loop over the rows sums it, from some row on.
template <class F> Vec<F> product_transposed(const Mat<F>& S, const Vec<F>& x, Index first) {
  Vec<F> sum = Vec<F>::Zero(S.cols());
  for (Index i = 0; i < x.size(); ++i) {
    const Index r = (first + i) % x.size();
    sum += S.row(r).transpose() * x[r];
  }
  return sum;
}

/// The adjoint of the recurrence in F, token by token in reverse, with states that are computed again; sums are those
/// of a loop.
template <class F>
StreamAdjoint<double> rounded_recurrent_adjoint(const Stream<double>& stream, double scale, const Mat<double>& dO,
                                                const Mat<double>& dS, const Schedule& how) {
  constexpr Index kKept = 64;  // tokens between kept states
  const Index m = stream.m, tokens = stream.tokens();
  const auto first = static_cast<Index>((how.stretch - 1) * static_cast<double>(stream.d_k()));
  const auto first_row = static_cast<Index>((how.stretch - 1) * static_cast<double>(stream.d_v()));
  const Round<F> strength(how.beta, how.stretch);
  const auto narrow = [](const Vec<double>& x) { return Vec<F>(x.cast<F>()); };
  const auto step = [&](Mat<F>& S, const MicroStep<double>& s) { recurrence_step<F>(S, s, strength, first); };

  StreamAdjoint<double> g{
      .steps = Steps<double>(stream.steps.size()), .Q = Mat<double>(tokens, stream.d_k()), .S0 = {}, .m = m};
  std::vector<Mat<F>> kept;
  Mat<F> S = stream.S0.cast<F>(), G = dS.cast<F>();
  for (Index i = 0; i < m * tokens; ++i) {
    if (i % (m * kKept) == 0) kept.push_back(S);
    step(S, stream.steps[static_cast<std::size_t>(i)]);
  }
  for (Index begin = (tokens - 1) / kKept * kKept; begin >= 0 && tokens > 0; begin -= kKept, kept.pop_back()) {
    const Index end = std::min(begin + kKept, tokens);
    std::vector<Mat<F>> states{kept.back()};
    for (Index i = m * begin; i < m * end; ++i) {
      states.push_back(states.back());
      step(states.back(), stream.steps[static_cast<std::size_t>(i)]);
    }
    for (Index t = end - 1; t >= begin; --t) {
      const Vec<F> d_out = F(scale) * narrow(dO.row(t).transpose());
      g.Q.row(t) = product_transposed<F>(states.back(), d_out, first_row).transpose().template cast<double>();
      G += d_out * narrow(stream.Q.row(t).transpose()).transpose();
      for (Index i = m * (t + 1) - 1; i >= m * t; --i) {
        states.pop_back();
        const MicroStep<double>& s = stream.steps[static_cast<std::size_t>(i)];
        MicroStep<double>& d = g.steps[static_cast<std::size_t>(i)];
        const Vec<F> x = narrow(s.x), y = narrow(s.y), v = narrow(s.v);
        const F beta = strength(static_cast<F>(s.beta));
        const Decay<F> decay = computed_decay<F>(s.d);
        const Mat<F>& before = states.back();  // [d_v x d_k]
        Mat<F> seen = before;
        if (!s.pre_decay) decay.decay_columns(seen);
        const Vec<F> e = v - product<F>(seen, x, first), Gy = product<F>(G, y, first);  // [d_v]
        const Vec<F> dv = beta * Gy;                                                    // [d_v]
        d.y = (beta * product_transposed<F>(G, e, first_row)).template cast<double>();
        d.v = dv.template cast<double>(), d.beta = static_cast<double>(e.dot(Gy));
        d.x = (-product_transposed<F>(seen, dv, first_row)).template cast<double>();
        if (!s.pre_decay) G -= dv * x.transpose();
        const Vec<double> per_channel =
            before.cwiseProduct(G).colwise().sum().transpose().template cast<double>();  // [d_k]
        if (!s.d.none()) d.d = s.d.scalar() ? Decay<double>(per_channel.sum()) : Decay<double>(per_channel);
        decay.decay_columns(G);
        if (s.pre_decay) G -= dv * x.transpose();
      }
    }
  }
  g.S0 = G.template cast<double>();
  return g;
}

/// The gradients that a kernel of that schedule returns, in F, before they are stored.
template <class F>
StreamAdjoint<double> simulate_adjoint(const Stream<double>& stream, double scale, const Mat<double>& dO,
                                       const Mat<double>& dS, const Schedule& how) {
  return how.C == 0 ? rounded_recurrent_adjoint<F>(stream, scale, dO, dS, how)
                    : rounded_chunk_adjoint<F>(stream, scale, dO, dS, how);
}

}  // namespace delta
