// SPDX-License-Identifier: Apache-2.0
#include "checks/mutants/mutants.hpp"

#include <algorithm>
#include <cmath>

#include "reference/forms/chunkwise.hpp"
#include "reference/forms/recurrent.hpp"
#include "reference/scalars/rounded.hpp"

namespace delta {
namespace {

using S = Stream<double>;
using O = Output<double>;
using Step = MicroStep<double>;

/// Changes every micro-step.
template <class F> void each(S& s, F f) {
  for (Step& m : s.steps) f(m);
}
/// Changes every decay that there is.
template <class F> void each_decay(S& s, F f) {
  each(s, [&](Step& m) { m.d.d = m.d.d.unaryExpr(f); });
}

/// v - S' k - lambda S q: the key reads the decayed state, the query's share the old one (y = k, x = k + lambda q).
void read_query_undecayed(Step& m) {
  m.x = m.d * m.y + (m.x - m.y);  // [d_k]
  m.pre_decay = true;
}

bool has_decay(const S& s) {
  return std::ranges::any_of(s.steps, [](const Step& m) { return !m.d.none(); });
}
bool square(const S& s) { return s.d_k() == s.d_v(); }
bool square_from_state(const S& s) { return square(s) && !s.S0.isZero(0); }
bool chunkable(const S& s) { return chunkwise_applies(s); }

// ---------------------------------------------------------------- wrong recurrences

/// The recurrence with something else than `apply` for a micro-step: edit(S, i) makes the i-th.
template <class F> O recurrence_with(const S& s, F edit) {
  O out{Mat<double>(s.tokens(), s.d_v()), s.S0};
  for (Index t = 0; t < s.tokens(); ++t) {
    for (Index i = s.m * t; i < s.m * (t + 1); ++i) edit(out.S, i);
    out.O.row(t) = out.S * s.Q.row(t).transpose();
  }
  return out;
}

/// alpha (S + beta (v - S x) y^T): the decay comes last.
O decay_after_write(const S& s, Index) {
  return recurrence_with(s, [&](Mat<double>& state, Index i) {
    Step undecayed = s.steps[i];
    undecayed.d = {};
    apply(state, undecayed);
    s.steps[i].d.decay_columns(state);
  });
}

/// o = S' q: the state is read after its decay and before the write.
O read_before_write(const S& s, Index) {
  O out{Mat<double>(s.tokens(), s.d_v()), s.S0};
  for (Index t = 0; t < s.tokens(); ++t)
    for (Index i = s.m * t; i < s.m * (t + 1); ++i) {
      if (i == s.m * (t + 1) - 1) {
        Mat<double> decayed = out.S;  // [d_v x d_k]
        s.steps[i].d.decay_columns(decayed);
        out.O.row(t) = decayed * s.Q.row(t).transpose();
      }
      apply(out.S, s.steps[i]);
    }
  return out;
}

/// S += beta y e^T: the outer product is the wrong way round.
O outer_product_transposed(const S& s, Index) {
  return recurrence_with(s, [&](Mat<double>& state, Index i) {
    const Step& m = s.steps[i];
    const Mat<double> before = state;  // [d_v x d_k]
    m.d.decay_columns(state);
    const Vec<double> e = m.v - (m.pre_decay ? before : state) * m.x;  // [d_v]
    state += m.beta * m.y * e.transpose();
  });
}

O state_reset_at_chunk(const S& s, Index C) {
  return recurrence_with(s, [&](Mat<double>& state, Index i) {
    if (i > 0 && i % (s.m * C) == 0) state.setZero();
    apply(state, s.steps[i]);
  });
}

/// The state in bf16, after every C-th token and after the last.
O state_rounded(const S& s, Index C) {
  return recurrence_with(s, [&](Mat<double>& state, Index i) {
    apply(state, s.steps[i]);
    if ((i + 1) % (s.m * C) == 0 || i + 1 == s.m * s.tokens())
      state = state.unaryExpr([](double x) { return kBf16.round(x); });
  });
}

// ---------------------------------------------------------------- wrong chunk forms

/// The chunk form of the derivation (scalar decay), with one matrix of it wrong.
struct ChunkFault {
  bool mask_in_output = false;          ///< M . Q Y^T for H . Q Y^T
  bool transposed_interaction = false;  ///< L_g from Y X^T for X Y^T
  bool plain_gram = false;              ///< M . X Y^T for H . X Y^T in L_g
  bool undecayed_w = false;             ///< Z = U~ - W S^T, without D_g
  bool one_inverse = false;  ///< W and U~ from one inverse, W = (I + L_g)^-1 D_g B X: equal, until it is wrong
};

O wrong_chunks(const S& s, Index C, const ChunkFault& fault) {
  const Index d_k = s.d_k(), d_v = s.d_v(), m = s.m;
  O out{Mat<double>(s.tokens(), d_v), s.S0};
  for (Index begin = 0; begin < s.tokens(); begin += C) {
    const Index c = std::min(C, s.tokens() - begin), R = m * c;
    Mat<double> X(R, d_k), Y(R, d_k), V(R, d_v), H = Mat<double>::Identity(R, R);
    Vec<double> beta(R), gamma(R);
    for (Index i = 0; i < R; ++i) {
      const Step& step = s.steps[m * begin + i];
      X.row(i) = step.x.transpose(), Y.row(i) = step.y.transpose(), V.row(i) = step.v.transpose();
      beta[i] = step.beta, gamma[i] = step.d[0] * (i > 0 ? gamma[i - 1] : 1);
      if (i > 0) H.row(i).head(i) = step.d[0] * H.row(i - 1).head(i);
    }
    const Mat<double> M = lower<double>(Mat<double>::Ones(R, R)), Q = s.Q.middleRows(begin, c);
    const Mat<double> XY =
        fault.transposed_interaction ? Mat<double>(Y * X.transpose()) : Mat<double>(X * Y.transpose());
    const Mat<double> L = strictly_lower<double>(beta.asDiagonal() * XY);  // [R x R]
    const Mat<double> L_g =
        strictly_lower<double>(beta.asDiagonal() * (fault.plain_gram ? M : H).cwiseProduct(XY));  // [R x R]
    const Mat<double> U = solve_unit_lower<double>(L_g, beta.asDiagonal() * V);                   // [R x d_v]
    const Vec<double> D = fault.undecayed_w ? Vec<double>(Vec<double>::Ones(R)) : gamma;
    const Mat<double> B = beta.asDiagonal() * X;  // [R x d_k]
    const Mat<double> DW = fault.one_inverse ? solve_unit_lower<double>(L_g, D.asDiagonal() * B)
                                             : Mat<double>(D.asDiagonal() * solve_unit_lower<double>(L, B));
    const Mat<double> Z = U - DW * out.S.transpose();  // [R x d_v]
    const auto last = Eigen::seqN(m - 1, c, m);
    const Mat<double> A = (fault.mask_in_output ? M : H)(last, Eigen::all).cwiseProduct(Q * Y.transpose());
    out.O.middleRows(begin, c) = gamma(last).asDiagonal() * (Q * out.S.transpose()) + A * Z;  // [c x d_v]
    const Mat<double> Y_out = H.row(R - 1).asDiagonal() * Y;                                  // [R x d_k]
    out.S = gamma[R - 1] * out.S + Z.transpose() * Y_out;                                     // [d_v x d_k]
  }
  return out;
}

constexpr double kLn2 = 0.693147180559945309;

// Ids are those that reports and tables use; the order is that of the table in the documentation.
const Mutant kMutants[] = {
    {.id = "decay-after-read",
     .what = "e = v - S x",
     .stream = [](S& s) { each(s, [](Step& m) { m.pre_decay = true; }); },
     .concerns = has_decay},
    {.id = "decay-after-write",
     .what = "alpha (S + beta (v - S x) k^T)",
     .form = decay_after_write,
     .concerns = has_decay},
    {.id = "decay-missing",
     .what = "alpha = 1",
     .stream = [](S& s) { each(s, [](Step& m) { m.d = {}; }); },
     .concerns = has_decay},
    {.id = "gate-base-2",
     .what = "alpha = 2^g",
     .stream = [](S& s) { each_decay(s, [](double d) { return std::pow(d, kLn2); }); },
     .concerns = has_decay},
    {.id = "gate-linear-as-log",
     .what = "exp(alpha) for alpha",
     .stream = [](S& s) { each_decay(s, [](double d) { return std::exp(d); }); },
     .concerns = has_decay},
    {.id = "gate-log-as-linear",
     .what = "g for exp(g)",
     .stream = [](S& s) { each_decay(s, [](double d) { return std::log(d); }); },
     .concerns = has_decay},
    {.id = "erase-missing", .what = "x = 0", .stream = [](S& s) { each(s, [](Step& m) { m.x.setZero(); }); }},
    {.id = "error-sign", .what = "e = v + S'x", .stream = [](S& s) { each(s, [](Step& m) { m.x = -m.x; }); }},
    {.id = "beta-twice",
     .what = "beta^2 (v - S'x)",
     .stream = [](S& s) { each(s, [](Step& m) { m.beta *= m.beta; }); }},
    {.id = "beta-on-value-only",
     .what = "beta v - S'x",
     .stream = [](S& s) { each(s, [](Step& m) { m.v *= m.beta, m.beta = 1; }); }},
    {.id = "beta-missing", .what = "beta = 1", .stream = [](S& s) { each(s, [](Step& m) { m.beta = 1; }); }},
    {.id = "read-before-write", .what = "o = S'q", .form = read_before_write},
    {.id = "scale-missing", .what = "scale = 1", .scale = [](double) { return 1.0; }},
    {.id = "scale-twice", .what = "scale^2", .scale = [](double s) { return s * s; }},
    {.id = "initial-state-ignored", .what = "S_0 = 0", .stream = [](S& s) { s.S0.setZero(); }},
    {.id = "initial-state-transposed",
     .what = "S_0^T for S_0",
     .stream = [](S& s) { s.S0.transposeInPlace(); },
     .concerns = square_from_state},
    {.id = "final-state-transposed",
     .what = "S_T^T for S_T",
     .output = [](O& o) { o.S.transposeInPlace(); },
     .concerns = square},
    {.id = "state-reset-at-chunk", .what = "S = 0 at each chunk", .form = state_reset_at_chunk, .chunked = true},
    {.id = "state-rounded",
     .what = "S in bf16 after each write",
     .form = [](const S& s, Index) { return state_rounded(s, 1); }},
    {.id = "state-rounded", .what = "S in bf16 at each chunk", .form = state_rounded, .chunked = true},
    {.id = "heads-tiled", .what = "key head j mod H", .input = {.heads_tiled = true}},
    {.id = "segment-leak", .what = "offsets ignored", .input = {.segment_leak = true}},
    {.id = "decay-mask-missing",
     .what = "M for H in the output",
     .form = [](const S& s, Index C) { return wrong_chunks(s, C, {.mask_in_output = true}); },
     .chunked = true,
     .concerns = chunkable},
    {.id = "interaction-transposed",
     .what = "L from K X^T",
     .form = [](const S& s, Index C) { return wrong_chunks(s, C, {.transposed_interaction = true}); },
     .chunked = true,
     .concerns = chunkable},
    {.id = "interaction-plain-gram",
     .what = "M for H in L",
     .form = [](const S& s, Index C) { return wrong_chunks(s, C, {.plain_gram = true}); },
     .chunked = true,
     .concerns = chunkable},
    {.id = "interaction-plain-gram",
     .what = "M for H in L, one inverse",
     .form = [](const S& s, Index C) { return wrong_chunks(s, C, {.plain_gram = true, .one_inverse = true}); },
     .chunked = true,
     .concerns = chunkable},
    {.id = "w-undecayed",
     .what = "Z = U~ - W S^T",
     .form = [](const S& s, Index C) { return wrong_chunks(s, C, {.undecayed_w = true}); },
     .chunked = true,
     .concerns = chunkable},
    {.id = "w-undecayed",
     .what = "Z = U~ - W S^T, one inverse",
     .form = [](const S& s, Index C) { return wrong_chunks(s, C, {.undecayed_w = true, .one_inverse = true}); },
     .chunked = true,
     .concerns = chunkable},
    {.id = "feedback-undecayed",
     .what = "k reads S', lambda q reads S",
     .stream = [](S& s) { each(s, read_query_undecayed); },
     .concerns = has_decay},
    {.id = "lambda-missing", .what = "lambda = 0", .input = {.lambda_missing = true}},
    {.id = "write-along-x", .what = "e x^T for e k^T", .stream = [](S& s) { each(s, [](Step& m) { m.y = m.x; }); }},
    {.id = "l2norm-missing", .what = "q and k as they are", .input = {.norm = Norm::missing}},
    {.id = "l2norm-twice", .what = "normalised twice", .input = {.norm = Norm::twice}},
    {.id = "l2norm-eps", .what = "eps added to the mean of squares", .input = {.norm = Norm::eps_on_mean}},
    {.id = "l2norm-eps", .what = "max(|x|, eps)", .input = {.norm = Norm::eps_as_floor}},
    {.id = "normalised-k-only", .what = "q as it is", .input = {.norm = Norm::only_k}},
    {.id = "outer-product-transposed", .what = "k e^T for e k^T", .form = outer_product_transposed, .concerns = square},
    {.id = "output-unwritten", .what = "o = 0", .output = [](O& o) { o.O.setZero(); }},
};

}  // namespace

std::span<const Mutant> mutants() { return kMutants; }

}  // namespace delta
