// SPDX-License-Identifier: Apache-2.0
// The known mistakes over one scalar: compiled once for each, with the forms.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "checks/mutants/mutants.hpp"
#include "reference/forms/chunkwise.hpp"
#include "reference/forms/recurrent.hpp"
#include "reference/scalars/convert.hpp"
#include "reference/scalars/rounded.hpp"

namespace delta {

/// What is wrong in the chunk form of the derivation (scalar decay): one of its matrices.
struct ChunkFault {
  bool mask_in_output = false;          ///< M . Q Y^T for H . Q Y^T
  bool transposed_interaction = false;  ///< L_g from Y X^T for X Y^T
  bool plain_gram = false;              ///< M . X Y^T for H . X Y^T in L_g
  bool undecayed_w = false;             ///< Z = U~ - W S^T, without D_g
  bool one_inverse = false;  ///< W and U~ from one inverse, W = (I + L_g)^-1 D_g B X: equal, until it is wrong
};

template <Ring T> struct Mistakes {
  using S = Stream<T>;
  using O = Output<T>;
  using Step = MicroStep<T>;

  /// Changes every micro-step.
  template <class F> static void each(S& s, F f) {
    for (Step& m : s.steps) f(m);
  }

  /// Changes every decay that there is, by a function that only doubles have.
  template <double (*f)(double)> static void each_decay(S& s) {
    each(s, [](Step& m) { m.d.d = m.d.d.unaryExpr([](const T& d) { return through_double<f>(d); }); });
  }
  template <double (*f)(double)> static T through_double(const T& x) {
    if constexpr (Scalar<T>::exact)
      return x;
    else
      return convert<T>(f(Scalar<T>::to_double(x)));
  }

  /// v - S' k - lambda S q: the key reads the decayed state, the query's share the old one (y = k, x = k + lambda q).
  static void read_query_undecayed(Step& m) {
    m.x = m.d * m.y + (m.x - m.y);  // [d_k]
    m.pre_decay = true;
  }

  static bool has_decay(const S& s) {
    return s.steps.empty() || std::ranges::any_of(s.steps, [](const Step& m) { return !m.d.none(); });
  }
  static bool square(const S& s) { return s.d_k() == s.d_v(); }

  // -------------------------------------------------------------- wrong recurrences

  /// The recurrence with something else than `apply` for a micro-step: edit(S, i) makes the i-th.
  template <class F> static O recurrence_with(const S& s, F edit) {
    O out{Mat<T>(s.tokens(), s.d_v()), s.S0};
    for (Index t = 0; t < s.tokens(); ++t) {
      for (Index i = s.m * t; i < s.m * (t + 1); ++i) edit(out.S, i);
      out.O.row(t) = out.S * s.Q.row(t).transpose();
    }
    return out;
  }

  /// alpha (S + beta (v - S x) y^T): the decay comes last.
  static O decay_after_write(const S& s, Index) {
    return recurrence_with(s, [&](Mat<T>& state, Index i) {
      Step undecayed = s.steps[i];
      undecayed.d = {};
      apply(state, undecayed);
      s.steps[i].d.decay_columns(state);
    });
  }

  /// o = S' q: the state is read after its decay and before the write.
  static O read_before_write(const S& s, Index) {
    O out{Mat<T>(s.tokens(), s.d_v()), s.S0};
    for (Index t = 0; t < s.tokens(); ++t)
      for (Index i = s.m * t; i < s.m * (t + 1); ++i) {
        if (i == s.m * (t + 1) - 1) {
          Mat<T> decayed = out.S;  // [d_v x d_k]
          s.steps[i].d.decay_columns(decayed);
          out.O.row(t) = decayed * s.Q.row(t).transpose();
        }
        apply(out.S, s.steps[i]);
      }
    return out;
  }

  /// S += beta y e^T: the outer product is the wrong way round.
  static O outer_product_transposed(const S& s, Index) {
    return recurrence_with(s, [&](Mat<T>& state, Index i) {
      const Step& m = s.steps[i];
      const Mat<T> before = state;  // [d_v x d_k]
      m.d.decay_columns(state);
      const Vec<T> e = m.v - (m.pre_decay ? before : state) * m.x;  // [d_v]
      state += (m.beta * m.y) * e.transpose();
    });
  }

  static O state_reset_at_chunk(const S& s, Index C) {
    return recurrence_with(s, [&](Mat<T>& state, Index i) {
      if (i > 0 && i % (s.m * C) == 0) state.setZero();
      apply(state, s.steps[i]);
    });
  }

  /// The state in bf16, after every C-th token and after the last.
  static double to_bf16(double x) { return kBf16.round(x); }
  static O state_rounded(const S& s, Index C) {
    return recurrence_with(s, [&](Mat<T>& state, Index i) {
      apply(state, s.steps[i]);
      if ((i + 1) % (s.m * C) == 0 || i + 1 == s.m * s.tokens())
        state = Mat<T>(state.unaryExpr([](const T& x) { return through_double<to_bf16>(x); }));
    });
  }

  // -------------------------------------------------------------- wrong chunk forms

  template <ChunkFault fault> static O wrong_chunks(const S& s, Index C) {
    const Index m = s.m;
    O out{Mat<T>(s.tokens(), s.d_v()), s.S0};
    for (Index begin = 0; begin < s.tokens(); begin += C) {
      const Index c = std::min(C, s.tokens() - begin), R = m * c;
      const ChunkRows<T> r(s, begin, c);
      const Mat<T> M = lower<T>(Mat<T>::Ones(R, R));  // [R x R]
      const Mat<T> XY = fault.transposed_interaction ? Mat<T>(r.Y * r.X.transpose()) : Mat<T>(r.X * r.Y.transpose());
      const Mat<T> L = strictly_lower<T>(r.beta.asDiagonal() * XY);  // [R x R]
      const Mat<T> L_g =
          strictly_lower<T>(r.beta.asDiagonal() * (fault.plain_gram ? M : r.H).cwiseProduct(XY));  // [R x R]
      const Mat<T> U = solve_unit_lower<T>(L_g, r.beta.asDiagonal() * r.V);                        // [R x d_v]
      const Vec<T> D = fault.undecayed_w ? Vec<T>(Vec<T>::Ones(R)) : r.gamma;
      const Mat<T> B = r.beta.asDiagonal() * r.X;  // [R x d_k]
      const Mat<T> DW = fault.one_inverse ? solve_unit_lower<T>(L_g, D.asDiagonal() * B)
                                          : Mat<T>(D.asDiagonal() * solve_unit_lower<T>(L, B));
      const Mat<T> Z = U - DW * out.S.transpose();  // [R x d_v]
      const auto last = Eigen::seqN(m - 1, c, m);
      const Mat<T> A = (fault.mask_in_output ? M : r.H)(last, Eigen::all).cwiseProduct(r.Q * r.Y.transpose());
      out.O.middleRows(begin, c) = r.gamma(last).asDiagonal() * (r.Q * out.S.transpose()) + A * Z;  // [c x d_v]
      const Mat<T> Y_out = r.H.row(R - 1).asDiagonal() * r.Y;                                       // [R x d_k]
      out.S = r.gamma[R - 1] * out.S + Z.transpose() * Y_out;                                       // [d_v x d_k]
    }
    return out;
  }

  // -------------------------------------------------------------- the table

  static double base_2(double d) { return std::exp2(std::log(d)); }
  static double exp(double d) { return std::exp(d); }
  static double log(double d) { return std::log(d); }

  static constexpr bool kReal = !Scalar<T>::exact;  // has an exponential and a rounding, through double
  static constexpr bool (*kChunks)(const S&) = chunkwise_applies<T>;

  // Ids are those that reports and tables use; the order is that of the table in the documentation.
  static std::vector<Mutant<T>> all() {
    std::vector<Mutant<T>> list{{.id = "decay-after-read",
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
                                 .concerns = has_decay}};
    const auto add = [&](std::initializer_list<Mutant<T>> more) { list.insert(list.end(), more); };
    if constexpr (kReal)
      add({{.id = "gate-base-2",
            .what = "alpha = 2^g",
            .part = Part::interface,
            .stream = each_decay<base_2>,
            .concerns = has_decay},
           {.id = "gate-linear-as-log",
            .what = "exp(alpha) for alpha",
            .part = Part::interface,
            .stream = each_decay<exp>,
            .concerns = has_decay},
           {.id = "gate-log-as-linear",
            .what = "g for exp(g)",
            .part = Part::interface,
            .stream = each_decay<log>,
            .concerns = has_decay}});
    add({{.id = "erase-missing", .what = "x = 0", .stream = [](S& s) { each(s, [](Step& m) { m.x.setZero(); }); }},
         {.id = "error-sign",
          .what = "e = v + S'x",
          .stream = [](S& s) { each(s, [](Step& m) { m.x = Vec<T>(-m.x); }); }},
         {.id = "beta-twice",
          .what = "beta^2 (v - S'x)",
          .stream = [](S& s) { each(s, [](Step& m) { m.beta *= T(m.beta); }); }},
         {.id = "beta-on-value-only",
          .what = "beta v - S'x",
          .stream = [](S& s) { each(s, [](Step& m) { m.v *= m.beta, m.beta = T(1); }); }},
         {.id = "beta-missing", .what = "beta = 1", .stream = [](S& s) { each(s, [](Step& m) { m.beta = T(1); }); }},
         {.id = "read-before-write", .what = "o = S'q", .form = read_before_write},
         {.id = "scale-missing", .what = "scale = 1", .part = Part::interface, .scale = [](const T&) { return T(1); }},
         {.id = "scale-twice",
          .what = "scale^2",
          .part = Part::interface,
          .scale = [](const T& s) { return T(s * s); }},
         {.id = "initial-state-ignored",
          .what = "S_0 = 0",
          .part = Part::interface,
          .stream = [](S& s) { s.S0.setZero(); }},
         {.id = "initial-state-transposed",
          .what = "S_0^T for S_0",
          .part = Part::interface,
          .stream = [](S& s) { s.S0.transposeInPlace(); },
          .concerns = square},
         {.id = "final-state-transposed",
          .what = "S_T^T for S_T",
          .part = Part::interface,
          .output = [](O& o) { o.S.transposeInPlace(); },
          .concerns = square},
         {.id = "state-reset-at-chunk", .what = "S = 0 at each chunk", .form = state_reset_at_chunk, .chunked = true}});
    if constexpr (kReal)
      add({{.id = "state-rounded",
            .what = "S in bf16 after each write",
            .form = [](const S& s, Index) { return state_rounded(s, 1); }},
           {.id = "state-rounded",
            .what = "S in bf16 at each chunk",
            .variant = "by-chunk",
            .form = state_rounded,
            .chunked = true}});
    add({{.id = "heads-tiled", .what = "key head j mod H", .part = Part::interface, .input = {.heads_tiled = true}},
         {.id = "segment-leak", .what = "offsets ignored", .part = Part::interface, .input = {.segment_leak = true}},
         {.id = "decay-mask-missing",
          .what = "M for H in the output",
          .form = wrong_chunks<ChunkFault{.mask_in_output = true}>,
          .chunked = true,
          .concerns = kChunks},
         {.id = "interaction-transposed",
          .what = "L from K X^T",
          .form = wrong_chunks<ChunkFault{.transposed_interaction = true}>,
          .chunked = true,
          .concerns = kChunks},
         {.id = "interaction-plain-gram",
          .what = "M for H in L",
          .form = wrong_chunks<ChunkFault{.plain_gram = true}>,
          .chunked = true,
          .concerns = kChunks},
         {.id = "interaction-plain-gram",
          .what = "M for H in L, one inverse",
          .variant = "one-inverse",
          .form = wrong_chunks<ChunkFault{.plain_gram = true, .one_inverse = true}>,
          .chunked = true,
          .concerns = kChunks},
         {.id = "w-undecayed",
          .what = "Z = U~ - W S^T",
          .form = wrong_chunks<ChunkFault{.undecayed_w = true}>,
          .chunked = true,
          .concerns = kChunks},
         {.id = "w-undecayed",
          .what = "Z = U~ - W S^T, one inverse",
          .variant = "one-inverse",
          .form = wrong_chunks<ChunkFault{.undecayed_w = true, .one_inverse = true}>,
          .chunked = true,
          .concerns = kChunks},
         {.id = "feedback-undecayed",
          .what = "k reads S', lambda q reads S",
          .stream = [](S& s) { each(s, read_query_undecayed); },
          .concerns = has_decay},
         {.id = "lambda-missing", .what = "lambda = 0", .input = {.lambda_missing = true}},
         {.id = "write-along-x", .what = "e x^T for e k^T", .stream = [](S& s) {
            each(s, [](Step& m) { m.y = m.x; });
          }}});
    if constexpr (kReal)
      add({{.id = "l2norm-missing",
            .what = "q and k as they are",
            .part = Part::interface,
            .input = {.norm = Norm::missing}},
           {.id = "l2norm-twice", .what = "normalised twice", .part = Part::interface, .input = {.norm = Norm::twice}},
           {.id = "l2norm-eps",
            .what = "eps added to the mean of squares",
            .part = Part::interface,
            .input = {.norm = Norm::eps_on_mean}},
           {.id = "l2norm-eps",
            .what = "max(|x|, eps)",
            .variant = "floor",
            .part = Part::interface,
            .input = {.norm = Norm::eps_as_floor}},
           {.id = "normalised-k-only",
            .what = "q as it is",
            .part = Part::interface,
            .input = {.norm = Norm::only_k}}});
    add({{.id = "outer-product-transposed",
          .what = "k e^T for e k^T",
          .form = outer_product_transposed,
          .concerns = square},
         {.id = "output-unwritten", .what = "o = 0", .output = [](O& o) { o.O.setZero(); }},
         {.id = "output-scaled",
          .what = "c o",
          .part = Part::interface,
          .scale = [](const T& s) { return T(T(3) * s); },
          .fitted = true}});
    return list;
  }
};

template <Ring T> std::span<const Mutant<T>> mutants() {
  static const std::vector<Mutant<T>> all = Mistakes<T>::all();
  return all;
}

}  // namespace delta
