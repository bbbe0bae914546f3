// SPDX-License-Identifier: Apache-2.0
#include "checks/core/laws.hpp"

#include <algorithm>

#include "checks/core/measure.hpp"
#include "reference/layer/normalise.hpp"

namespace delta {
namespace {

constexpr double kBroken = INFINITY;
LawOutcome holds(bool yes) { return yes ? 0 : kBroken; }

/// A law's case over one scalar: problems to try it on, and the form as a function of a problem.
template <Ring T> struct Lab {
  const LawCase& c;

  /// The n-th problem of that size: numbers of the family, or uniformly random ones in an exact scalar.
  Problem<T> problem(const Size& size, std::uint64_t n = 0) const {
    const Problem<double> p = draw(c.rule.info, c.family, size, c.seed + n);
    if constexpr (Scalar<T>::exact)
      return generic<T>(p, c.seed + n);
    else
      return over<T>(p);
  }
  Problem<T> problem(std::uint64_t n = 0) const { return problem(c.size, n); }
  Result<T> operator()(const Problem<T>& p, Index C) const { return compute<T>(c.rule, c.form, C, p); }
  Result<T> operator()(const Problem<T>& p) const { return (*this)(p, c.size.C); }
  Index C() const { return c.size.C; }
  bool chunked() const { return is_chunked<T>(c.form); }
  const RuleInfo& info() const { return c.rule.info; }
};

template <Ring T> bool equal(const Result<T>& a, const Result<T>& b) {
  return std::ranges::equal(a, b, [](const Output<T>& x, const Output<T>& y) { return x.O == y.O && x.S == y.S; });
}

/// Calls f on each tensor of a problem that has a token axis.
template <class P, class F> void for_tensors(P& p, F f) {
  f(p.q), f(p.k), f(p.v), f(p.beta), f(p.alpha), f(p.lambda);
  for (auto& x : p.inputs) f(x);
}

/// Tokens first .. first + n - 1 of every row of the batch, without their initial state.
template <Ring T> Problem<T> tokens(Problem<T> p, Index first, Index n) {
  p.shape.T = n;
  p.shape.offsets.clear();
  for_tensors(p, [&](Tensor<T>& x) {
    if (x.empty()) return;
    const Index width = x.heads * x.rows * x.cols;
    Tensor<T> part(x.B, n, x.heads, x.cols, x.rows);
    for (Index b = 0; b < x.B; ++b)
      if (n > 0) std::copy_n(x.at(b, first, 0), n * width, part.at(b, 0, 0));
    x = std::move(part);
  });
  return p;
}

/// p with its tokens first .. end - 1 taken from another problem of the same shapes.
template <Ring T> Problem<T> with_tokens(Problem<T> p, const Problem<T>& other, Index first, Index end) {
  std::vector<const Tensor<T>*> from;
  for_tensors(other, [&](const Tensor<T>& x) { from.push_back(&x); });
  auto source = from.begin();
  for_tensors(p, [&](Tensor<T>& x) {
    const Tensor<T>& y = **source++;
    if (x.empty()) return;
    for (Index b = 0; b < x.B; ++b)
      if (end > first) std::copy_n(y.at(b, first, 0), (end - first) * x.heads * x.rows * x.cols, x.at(b, first, 0));
  });
  return p;
}

/// The values of a problem, everything that its outputs are linear in together with the initial state.
template <Ring T, class F> void for_values(const RuleInfo& rule, Problem<T>& p, F f) {
  f(p.v);
  for (std::size_t i = 0; i < rule.inputs.size(); ++i)
    if (rule.inputs[i].like == Like::value) f(p.inputs[i]);
}
template <Ring T> Problem<T> without_values(const RuleInfo& rule, Problem<T> p) {
  for_values(rule, p, [](Tensor<T>& x) { std::ranges::fill(x.data, T(0)); });
  return p;
}
template <Ring T> Problem<T> without_state(Problem<T> p) {
  p.S0.clear();
  return p;
}
template <Ring T> Result<T> sum(Result<T> a, const Result<T>& b, const T& c = T(1)) {
  for (std::size_t n = 0; n < a.size(); ++n) a[n].O += c * b[n].O, a[n].S += c * b[n].S;
  return a;
}
template <Ring T> void scale(Tensor<T>& x, const T& c) {
  for (T& e : x.data) e *= c;
}

/// The same size packed into three segments of one row, one of them empty, with slack behind the last.
Size packed(Size z) {
  const Index T = std::max<Index>(z.shape.T, 6);
  z.shape.B = 1, z.shape.T = T, z.shape.offsets = {0, T / 3 + 1, T / 3 + 1, T - 1};
  return z;
}

constexpr auto chunk_size = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  if (!f.chunked()) return {};
  const Problem<T> p = f.problem();
  const Result<T> want = f(p);
  return holds(std::ranges::all_of(std::initializer_list<Index>{1, 2, 3, 5, p.shape.T + 1},
                                   [&](Index C) { return equal<T>(want, f(p, C)); }));
};

constexpr auto split = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  const Problem<T> p = f.problem();
  const Result<T> want = f(p);
  for (const Index n : {Index{0}, Index{1}, f.C() - 1, f.C(), f.C() + 1, p.shape.T}) {
    if (n > p.shape.T) continue;
    const Result<T> first = f(tokens<T>(p, 0, n));
    Problem<T> rest = tokens<T>(p, n, p.shape.T - n);
    rest.S0.clear();
    for (const Output<T>& lane : first) rest.S0.push_back(lane.S);
    const Result<T> second = f(rest);
    for (std::size_t lane = 0; lane < want.size(); ++lane)
      if (want[lane].O.topRows(n) != first[lane].O || want[lane].O.bottomRows(p.shape.T - n) != second[lane].O ||
          want[lane].S != second[lane].S)
        return kBroken;
  }
  return 0;
};

constexpr auto prefix = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  const Problem<T> p = f.problem(), other = f.problem(1);
  const Result<T> want = f(p);
  for (Index n = 0; n < p.shape.T; ++n) {
    const Result<T> got = f(with_tokens<T>(p, other, n, p.shape.T));
    for (std::size_t lane = 0; lane < want.size(); ++lane)
      if (want[lane].O.topRows(n) != got[lane].O.topRows(n)) return kBroken;
  }
  return 0;
};

constexpr auto segment = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  const Size z = packed(f.c.size);
  const Problem<T> p = f.problem(z), other = f.problem(z, 1);
  const Result<T> want = f(p);
  for (Index n = 0; n < z.shape.sequences(); ++n) {
    const Result<T> got = f(with_tokens<T>(p, other, z.shape.begin(n), z.shape.end(n)));
    for (Index m = 0; m < z.shape.sequences(); ++m)
      for (Index j = 0; j < z.shape.HV; ++j)
        if (const auto lane = static_cast<std::size_t>(m * z.shape.HV + j);
            m != n && !equal<T>({want[lane]}, {got[lane]}))
          return kBroken;
  }
  return 0;
};

constexpr auto packing = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  const Size z = packed(f.c.size);
  const Problem<T> p = f.problem(z);
  const Result<T> want = f(p);
  for (Index n = 0; n < z.shape.sequences(); ++n) {
    Problem<T> alone = tokens<T>(p, z.shape.begin(n), z.shape.length(n));
    if (!p.S0.empty()) alone.S0 = {p.S0.begin() + n * z.shape.HV, p.S0.begin() + (n + 1) * z.shape.HV};
    if (!equal<T>(f(alone), {want.begin() + n * z.shape.HV, want.begin() + (n + 1) * z.shape.HV})) return kBroken;
  }
  return 0;
};

constexpr auto heads = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  Size z = f.c.size;
  z.shape.H = 2, z.shape.HV = 4;
  const Problem<T> p = f.problem(z), other = f.problem(z, 1);
  const Result<T> want = f(p);
  Problem<T> q = p;  // everything that belongs to value head 0, and nothing that it shares with value head 1
  std::vector<const Tensor<T>*> from;
  for_tensors(other, [&](const Tensor<T>& x) { from.push_back(&x); });
  auto source = from.begin();
  for_tensors(q, [&](Tensor<T>& x) {
    const Tensor<T>& y = **source++;
    if (x.heads != z.shape.HV) return;
    for (Index b = 0; b < x.B; ++b)
      for (Index t = 0; t < x.tokens; ++t) std::copy_n(y.at(b, t, 0), x.rows * x.cols, x.at(b, t, 0));
  });
  const Result<T> got = f(q);
  for (std::size_t lane = 0; lane < want.size(); ++lane)
    if (lane % 4 != 0 && !equal<T>({want[lane]}, {got[lane]})) return kBroken;
  Problem<T> repeated = p;  // each value head with a key head of its own
  repeated.shape.H = 4;
  for (Tensor<T>* x : {&repeated.q, &repeated.k}) {
    Tensor<T> wide(x->B, x->tokens, 4, x->cols, x->rows);
    for (Index b = 0; b < x->B; ++b)
      for (Index t = 0; t < x->tokens; ++t)
        for (Index j = 0; j < 4; ++j) std::copy_n(x->at(b, t, z.shape.key_head(j)), x->cols, wide.at(b, t, j));
    *x = std::move(wide);
  }
  return holds(equal<T>(want, f(repeated)));
};

constexpr auto repeat = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  const Problem<T> p = f.problem();
  return holds(equal<T>(f(p), f(p)));
};

constexpr auto state_linear = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  const Problem<T> p = f.problem();
  return holds(equal<T>(f(p), sum<T>(f(without_state<T>(p)), f(without_values<T>(f.info(), p)))));
};

constexpr auto value_linear = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  const T c(3);
  const Problem<T> a = f.problem();
  Problem<T> b = a, both = a;
  const Problem<T> other = f.problem(1);
  auto values = [&](Problem<T>& p) {
    std::vector<Tensor<T>*> all;
    for_values(f.info(), p, [&](Tensor<T>& x) { all.push_back(&x); });
    return all;
  };
  Problem<T> fresh = other;
  const auto of_b = values(b), of_both = values(both), of_fresh = values(fresh);
  for (std::size_t i = 0; i < of_b.size(); ++i) {
    *of_b[i] = *of_fresh[i];
    for (std::size_t j = 0; j < of_both[i]->data.size(); ++j) of_both[i]->data[j] += c * of_fresh[i]->data[j];
  }
  b.S0 = other.S0;
  for (std::size_t lane = 0; lane < both.S0.size(); ++lane) both.S0[lane] += c * other.S0[lane];
  return holds(equal<T>(f(both), sum<T>(f(a), f(b), c)));
};

constexpr auto neutral = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  const Problem<T> p = f.problem();
  auto same = [&](auto clear, auto fill) {
    Problem<T> absent = p, given = p;
    clear(absent), fill(given);
    return equal<T>(f(absent), f(given));
  };
  auto constant = [&](Tensor<T> Problem<T>::*x, int c) {
    return (p.*x).empty() ||
           same([&](Problem<T>& a) { a.*x = {}; }, [&](Problem<T>& g) { std::ranges::fill((g.*x).data, T(c)); });
  };
  return holds(constant(&Problem<T>::beta, 1) && constant(&Problem<T>::alpha, 1) && constant(&Problem<T>::lambda, 0) &&
               same([](Problem<T>& a) { a.S0.clear(); },
                    [](Problem<T>& g) {
                      for (Mat<T>& S : g.S0) S.setZero();
                    }));
};

/// One rule is another one when an input has a certain value.
struct Reduction {
  std::string_view rule, to;
  enum { lambda_0, alpha_1, alpha_constant } when;
};
constexpr Reduction kReductions[] = {
    {"q_delta", "gated_delta", Reduction::lambda_0},   {"gated_delta", "delta", Reduction::alpha_1},
    {"kda", "gated_delta", Reduction::alpha_constant}, {"gla", "mamba2", Reduction::alpha_constant},
    {"mamba2", "linear", Reduction::alpha_1},          {"retnet", "linear", Reduction::alpha_1},
};

constexpr auto reduction = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  LawOutcome out;
  for (const Reduction& r : kReductions) {
    const Rule* to = find_rule(r.to);
    if (r.rule != f.info().id || !to) continue;
    Problem<T> p = f.problem();
    if (r.when == Reduction::lambda_0) std::ranges::fill(p.lambda.data, T(0));
    if (r.when == Reduction::alpha_1) std::ranges::fill(p.alpha.data, T(1));
    if (r.when == Reduction::alpha_constant)
      for (std::size_t i = 0; i < p.alpha.data.size(); ++i)
        p.alpha.data[i] = p.alpha.data[i - i % static_cast<std::size_t>(p.alpha.cols)];
    const Result<T> got = f(p);
    if (r.when == Reduction::lambda_0) p.lambda = {};
    if (r.when == Reduction::alpha_1) p.alpha = {};
    if (r.when == Reduction::alpha_constant) {
      Tensor<T> one(p.alpha.B, p.alpha.tokens, p.alpha.heads, 1);
      for (std::size_t i = 0; i < one.data.size(); ++i) one.data[i] = p.alpha.data[i * p.alpha.cols];
      p.alpha = std::move(one);
    }
    out = equal<T>(got, compute<T>(*to, f.c.form, f.C(), p)) ? 0 : kBroken;
    if (*out != 0) return out;
  }
  return out;
};

constexpr auto rescale = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  if (!f.info().inputs.empty()) return {};
  const T c(2);
  const Problem<T> p = f.problem();
  Problem<T> scaled = p;
  scale<T>(scaled.k, c);
  if (f.info().strength == Strength::no) {  // k v^T keeps its size: v by 1/c, or all of the other run's v by c
    Problem<T> doubled = p;
    scale<T>(doubled.v, c);
    return holds(equal<T>(f(doubled), f(scaled)));
  }
  scale<T>(scaled.v, c), scale<T>(scaled.lambda, c);
  Problem<T> strong = p;
  scale<T>(strong.beta, c * c);  // beta / c^2 without a division: the unscaled run has the larger strength
  return holds(equal<T>(f(strong), f(scaled)));
};

/// Brings q and k to unit length in two places: where the kernel does it, and before it.
constexpr auto norm = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  const T eps = convert<T>(1e-6);
  Problem<T> inside = f.problem();
  for (Tensor<T>* x : {&inside.q, &inside.k})  // lengths from 4 down to where eps matters
    for (std::size_t i = 0; i < x->data.size(); ++i)
      x->data[i] *= convert<T>(std::ldexp(4, -2 * static_cast<int>(i / static_cast<std::size_t>(x->cols) % 6)));
  Problem<T> before = inside;
  inside.l2norm = eps;
  for (Tensor<T>* x : {&before.q, &before.k})
    for (std::size_t i = 0; i < x->data.size(); i += static_cast<std::size_t>(x->cols)) {
      Eigen::Map<Vec<T>> row(x->data.data() + i, x->cols);
      row = l2_normalise<T>(row, eps);
    }
  return holds(equal<T>(f(inside), f(before)));
};

/// Householder's reflection I - 2 w w^T / w^T w with w = (1, 1, 0, ...): swaps two channels and turns their signs.
constexpr auto rotation = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  const RuleInfo& info = f.info();
  if (!info.inputs.empty() || info.forget == Forget::per_channel || f.c.size.shape.d_k < 2) return {};
  const Problem<T> p = f.problem();
  Problem<T> turned = p;
  auto turn = [](T& a, T& b) {
    const T old = a;
    a = -b, b = -old;
  };
  for (Tensor<T>* x : {&turned.q, &turned.k})
    for (Index i = 0; i < static_cast<Index>(x->data.size()); i += x->cols) turn(x->data[i], x->data[i + 1]);
  auto turn_state = [&](Mat<T>& S) {
    for (Index r = 0; r < S.rows(); ++r) turn(S(r, 0), S(r, 1));
  };
  for (Mat<T>& S : turned.S0) turn_state(S);
  Result<T> want = f(p);
  for (Output<T>& lane : want) turn_state(lane.S);
  return holds(equal<T>(want, f(turned)));
};

/// Calls f(micro-step, e before the write, e after it) along every sequence of every head.
template <Ring T, class F> void for_errors(const Lab<T>& lab, const Problem<T>& p, F f) {
  const Rule& rule = lab.c.rule;
  for (Index n = 0; n < p.shape.sequences(); ++n)
    for (Index j = 0; j < p.shape.HV; ++j)
      each_stream<T>(rule.info, rule.over<T>(), p, n, j, [&](const Stream<T>& s, Index) {
        recurrent<T>(s, [&](const MicroStepTrace<T>& m) {
          f(m.step, s.steps[static_cast<std::size_t>(m.step)], m.e_prior, m.e_posterior);
        });
      });
}

/// A prediction from before the decay is compared with a state after it only where there is no decay.
template <Ring T> bool one_probe(const MicroStep<T>& s) { return !s.pre_decay || s.d.none(); }

constexpr auto contraction = []<Ring T>(const Lab<T>& f) -> LawOutcome {
  if (f.c.form != "recurrent") return {};
  bool all = true, any = false;
  for_errors<T>(f, f.problem(), [&](Index, const MicroStep<T>& s, const Vec<T>& before, const Vec<T>& after) {
    if (!one_probe(s)) return;
    const T a = s.y.dot(s.x);
    all = all && after == Vec<T>((T(1) - s.beta * a) * before);
    any = true;
  });
  return any ? holds(all) : std::nullopt;
};

/// In the maximum norm, which keeps the inequality rational: Theorem 3.2 holds in every norm.
LawOutcome tracking(const LawCase& c) {
  using Q = Rational;
  if (c.form != "recurrent") return {};
  struct Track {
    std::vector<Q> errors;  ///< |e_0|, |e_1|, ...
    Vec<Q> last;
    Q rho = 0, r = 0;
  };
  auto norm = [](const Vec<Q>& e) {
    Q most = 0;
    for (const Q& x : e) most = std::max<Q>(most, abs(x));
    return most;
  };
  const Lab<Q> lab{c};
  std::vector<Track> tracks;
  bool comparable = true;
  const Problem<Q> p = over<Q>(draw(c.rule.info, c.family, c.size, c.seed));
  for_errors<Q>(lab, p, [&](Index step, const MicroStep<Q>& s, const Vec<Q>& before, const Vec<Q>& after) {
    comparable = comparable && one_probe(s);
    if (step == 0) {  // the first corrected error stands for e_0
      tracks.push_back({{norm(after)}, after});
      return;
    }
    Track& t = tracks.back();
    t.rho = std::max<Q>(t.rho, abs(Q(1 - s.beta * s.y.dot(s.x))));
    t.r = std::max<Q>(t.r, norm(Vec<Q>(before - t.last)));
    t.errors.push_back(norm(after));
    t.last = after;
  });
  if (!comparable) return {};
  LawOutcome worst;
  for (const Track& t : tracks) {
    if (t.rho >= 1 || t.errors.size() < 2) continue;  // the theorem is empty
    Q power = 1;
    for (const Q& e : t.errors) {
      const Q bound = power * t.errors[0] + t.rho * (1 - power) / (1 - t.rho) * t.r;
      const double tight = bound == 0 ? (e == 0 ? 0 : kBroken) : Scalar<Q>::to_double(Q(e / bound));
      worst = std::max(worst.value_or(0), e > bound ? kBroken : tight);
      power *= t.rho;
    }
  }
  return worst;
}

/// R2, in a scalar wide enough to see the residual.
template <Real T> LawOutcome residual(const Lab<T>& f, double unit) {
  using J = DoubleDouble;
  if (f.c.form != "one_solve") return {};
  const RuleInfo& info = f.info();
  const Problem<T> p = f.problem();
  auto wide = [](const Mat<T>& A) { return Mat<J>(A.unaryExpr([](const T& x) { return convert<J>(x); })); };
  auto size = [](const Mat<J>& A) {
    return A.size() == 0 ? 0.0 : A.unaryExpr([](const J& x) { return std::abs(Scalar<J>::to_double(x)); }).maxCoeff();
  };
  double worst = 0;
  for (Index n = 0; n < p.shape.sequences(); ++n)
    for (Index j = 0; j < p.shape.HV; ++j)
      each_stream<T>(info, f.c.rule.template over<T>(), p, n, j, [&](const Stream<T>& s, Index) {
        Mat<T> S = s.S0;  // the state at the chunk's start
        one_solve<T>(s, f.C(), [&](const OneSolve<T>& h) {
          const Mat<T> rhs = h.U - h.P_bar * S.transpose();
          const Mat<J> L = wide(h.L), Z = wide(h.Z), B = wide(rhs);
          const double rows =
              L.unaryExpr([](const J& x) { return std::abs(Scalar<J>::to_double(x)); }).rowwise().sum().maxCoeff() + 1;
          const double R = static_cast<double>(L.rows()), scale = unit * R * (rows * size(Z) + size(B));
          const double r = size(Mat<J>(L * Z + Z - B));
          worst = std::max(worst, r == 0 ? 0 : std::isfinite(r) ? r / scale : kBroken);
          S = h.S;
        });
      });
  return worst;
}

using Check = std::pair<std::string_view, LawCheck>;

/// Algebra: proved at random points of a prime field.
template <const auto& law> constexpr Check algebraic[] = {{"gf61", [](const LawCase& c) { return law(Lab<GF61>{c}); }}};

/// Independence: also bit for bit in rounded scalars.
template <const auto& law>
constexpr Check bitwise[] = {{"gf61", [](const LawCase& c) { return law(Lab<GF61>{c}); }},
                             {"double", [](const LawCase& c) { return law(Lab<double>{c}); }},
                             {"bf16", [](const LawCase& c) {
                                const Working::Scope scope(kBf16);
                                return law(Lab<AnyFormat>{c});
                              }}};

constexpr Check norm_checks[] = {{"double", [](const LawCase& c) { return norm(Lab<double>{c}); }}};
constexpr Check tracking_checks[] = {{"rational", tracking}};
constexpr Check residual_checks[] = {
    {"double", [](const LawCase& c) { return residual(Lab<double>{c}, Scalar<double>::unit); }},
    {"bf16", [](const LawCase& c) {
       const Working::Scope scope(kBf16);
       return residual(Lab<AnyFormat>{c}, kBf16.unit());
     }}};

constexpr Law kLaws[] = {
    {"chunk_size", "every chunk length gives the same result", algebraic<chunk_size>},
    {"split", "a run split anywhere, its state handed on, is the whole run", algebraic<split>},
    {"state_linear", "f(v, S_0) = f(v, 0) + f(0, S_0)", algebraic<state_linear>},
    {"value_linear", "f is linear in (v, S_0)", algebraic<value_linear>},
    {"prefix", "what comes after a token never changes its output", bitwise<prefix>},
    {"segment", "a segment never sees another one", bitwise<segment>},
    {"packing", "packed segments are the separate runs", bitwise<packing>},
    {"heads", "heads are independent; grouped heads are repeated ones", bitwise<heads>},
    {"neutral", "an input left out is its neutral value: alpha 1, beta 1, lambda 0, S_0 0", bitwise<neutral>},
    {"reduction", "lambda = 0, alpha = 1 or equal channels give the simpler rule", algebraic<reduction>},
    {"rescale", "k by c, beta by 1/c^2, v and lambda by c: the same outputs", bitwise<rescale>},
    {"norm", "q and k brought to unit length inside or before: the same outputs", norm_checks},
    {"rotation", "S R^T, R k, R q: the same outputs, for decays that treat channels alike", algebraic<rotation>},
    {"repeat", "two runs are equal", bitwise<repeat>},
    {"contraction", "e_t = (1 - beta k.x) e~_t  (F89, F95)", algebraic<contraction>},
    {"tracking", "|e_t| <= rho^t |e_0| + rho (1 - rho^t)/(1 - rho) r  (F92), share used", tracking_checks, true},
    {"residual", "R2, the residual of (I + L) Z = B over its rounding bound", residual_checks, true},
};

}  // namespace

std::span<const Law> laws() { return kLaws; }

const Law* find_law(std::string_view name) {
  for (const Law& l : kLaws)
    if (l.name == name) return &l;
  return nullptr;
}

}  // namespace delta
