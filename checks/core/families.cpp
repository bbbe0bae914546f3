// SPDX-License-Identifier: Apache-2.0
#include "checks/core/families.hpp"

#include <limits>

#include "reference/scalars/rounded.hpp"

namespace delta {
namespace draws {

// Vectors: one a row.
void normal(Mat<double>& K, Random& r) {
  for (Index t = 0; t < K.rows(); ++t)
    for (Index i = 0; i < K.cols(); ++i) K(t, i) = r.normal();
}
void normalise(Mat<double>& K) {
  for (Index t = 0; t < K.rows(); ++t) {
    double n2 = 0;
    for (Index i = 0; i < K.cols(); ++i) n2 += K(t, i) * K(t, i);
    K.row(t) /= std::sqrt(n2);
  }
}
void unit(Mat<double>& K, Random& r) {
  normal(K, r);
  normalise(K);
}
/// Unit vectors about one direction, at cosines of about 0.95 to it and so of about 0.9 to each other.
void correlated(Mat<double>& K, Random& r) {
  unit(K, r);
  for (Index t = 1; t < K.rows(); ++t) K.row(t) = 0.95 * K.row(0) + 0.31 * K.row(t);
  normalise(K);
}
void repeated(Mat<double>& K, Random& r) {
  unit(K, r);
  for (Index t = 1; t < K.rows(); ++t) K.row(t) = K.row(0);
}
void alternating(Mat<double>& K, Random& r) {
  unit(K, r);
  for (Index t = 1; t < K.rows(); ++t) K.row(t) = -K.row(t - 1);
}
void one_hot(Mat<double>& K, Random& r) {
  K.setZero();
  for (Index t = 0; t < K.rows(); ++t) K(t, r.below(K.cols())) = 1;
}
void with_zeros(Mat<double>& K, Random& r) {
  unit(K, r);
  for (Index t = 1; t < K.rows(); t += 3) K.row(t).setZero();
}
void tiny(Mat<double>& K, Random& r) {
  unit(K, r);
  K *= 0x1p-13;
}
/// Norms 1, 1/128, 1/1024, 1/8192 and 0 in turn.
void norm_ladder(Mat<double>& K, Random& r) {
  constexpr double norms[] = {1, 0x1p-7, 0x1p-10, 0x1p-13, 0};
  unit(K, r);
  for (Index t = 0; t < K.rows(); ++t) K.row(t) *= norms[t % 5];
}
/// e_i + e_j or e_i - e_j: with beta = 1 the erase swaps two columns of the state, or swaps and negates them.
void swaps(Mat<double>& K, Random& r) {
  K.setZero();
  for (Index t = 0; t < K.rows(); ++t) {
    const Index i = r.below(K.cols()), j = (i + 1 + r.below(std::max<Index>(K.cols() - 1, 1))) % K.cols();
    K(t, i) = 1;
    if (j != i) K(t, j) = r.sign();
  }
}
/// Four entries of +-1/2: unit length without rounding; one entry of 1 where there are fewer than four channels.
void half_entries(Mat<double>& K, Random& r) {
  if (K.cols() < 4) return one_hot(K, r);
  K.setZero();
  for (Index t = 0; t < K.rows(); ++t)
    for (Index n = 0, i = r.below(K.cols()); n < 4; ++n) K(t, (i + n) % K.cols()) = r.sign() / 2;
}
/// e_2 and e_1 - e_2 in turn, and the queries that go with them: see `growth` in the table.
void growth_keys(Mat<double>& K, Random&) {
  K.setZero();
  for (Index t = 0; t < K.rows(); ++t) {
    K(t, 0) = static_cast<double>(t % 2);
    if (K.cols() > 1) K(t, 1) = t % 2 ? -1 : 1;
  }
}
void growth_queries(Mat<double>& Q, Random&) {
  Q.setZero();
  for (Index t = 0; t < Q.rows(); ++t) {
    Q(t, 0) = -1;
    if (Q.cols() > 1) Q(t, 1) = t % 2 ? -1 : 0;
  }
}
void zero(Mat<double>& V, Random&) { V.setZero(); }
void small_integers(Mat<double>& V, Random& r) {
  for (double& x : V.reshaped()) x = static_cast<double>(r.below(5) - 2);
}
void wide(Mat<double>& V, Random& r) {
  normal(V, r);
  for (Index t = 0; t < V.rows(); ++t) V.row(t) *= std::ldexp(1, static_cast<int>(r.below(17)) - 8);
}

// Initial states.
void large(Mat<double>& S, Random& r) {
  normal(S, r);
  S *= 65536;
}
void first_column(Mat<double>& S, Random& r) {
  S.setZero();
  for (Index i = 0; i < S.rows(); ++i) S(i, 0) = static_cast<double>(1 + r.below(3));
}

// Decays. With u uniform on (0, 1) the ladder sums ln alpha over a chunk to about -0.01 C, -0.5 and -20.
double weak(const Site&, Random& r) { return std::exp(-0.02 * r.uniform()); }
double half(const Site& s, Random& r) { return std::exp(-r.uniform() / static_cast<double>(s.C)); }
double strong(const Site& s, Random& r) { return std::exp(-40 * r.uniform() / static_cast<double>(s.C)); }
double masked(const Site&, Random& r) { return r.below(2) ? 1 : r.uniform(0.25, 1); }
double resets(const Site& s, Random& r) { return s.t % 5 == 3 ? 0 : r.uniform(0.75, 1); }
double keep_or_clear(const Site&, Random& r) { return r.below(4) ? 1 : 0; }  // ln alpha = 0 or -1000
double zero_channel(const Site& s, Random& r) { return (s.t + 2 * s.i) % 7 == 3 ? 0 : r.uniform(0.75, 1); }
double one_fast_channel(const Site& s, Random&) { return s.i == 0 ? std::exp(-6.) : 1; }
double by_head(const Site& s, Random&) { return 1 / static_cast<double>(1 + s.h); }
double tenth(const Site&, Random&) { return 0.1; }
double floor_of_range(const Site&, Random&) { return std::exp(-5.); }

// Strengths and shares.
double uniform(const Site&, Random& r) { return r.uniform(); }
double zero_number(const Site&, Random&) { return 0; }
double one(const Site&, Random&) { return 1; }
double two(const Site&, Random&) { return 2; }
double to_two(const Site&, Random& r) { return r.uniform(0, 2); }
double small(const Site&, Random& r) { return r.uniform(0, 1. / 256); }
double growth_beta(const Site& s, Random&) { return s.t % 2 ? 0.5 : 1; }  // 1 / |k|^2

}  // namespace draws

namespace {

// Sizes at which a difficulty exists, where the one asked for is too small.
Size long_chunk(Size z) { return {{.T = 65, .d_k = 3, .d_v = 2, .n_h = z.shape.n_h, .offsets = {}}, 64}; }
Size with_slack(Size z) {
  if (z.shape.offsets.empty() && z.shape.T >= 5) {
    const Index T = z.shape.T;
    z.shape.B = 1, z.shape.offsets = {0, T / 3, T / 3, T - 3};
  }
  return z;
}
Size grouped(Size z) {
  z.shape.H = 2, z.shape.HV = 6;
  return z;
}

constexpr Family kFamilies[] = {
    // The ladder of gates: no single strength shows both a lost initial state and a wrong order of decay and read.
    {.name = "gate_half", .why = "unit keys, a chunk decays by e^-0.5: the easy baseline"},
    {.name = "gate_weak",
     .why = "e^-0.01 a token: the first state and early tokens matter to the end",
     .alpha = draws::weak,
     .needs = Needs::decay},
    {.name = "gate_strong",
     .why = "a chunk decays by e^-20: only the order of decay and read is left to see",
     .alpha = draws::strong,
     .needs = Needs::decay},
    {.name = "gate_one",
     .why = "alpha exactly 1, the edge of every guarded exponential",
     .alpha = draws::one,
     .needs = Needs::decay},
    {.name = "gate_masked",
     .why = "alpha exactly 1 at random tokens, ordinary at the others",
     .alpha = draws::masked,
     .needs = Needs::decay},
    {.name = "gate_keep_or_clear",
     .why = "ln alpha 0 or -1000 (alpha is 0): differences of sums are 0 or garbage",
     .alpha = draws::keep_or_clear,
     .needs = Needs::decay},
    {.name = "alpha_zero",
     .why = "ln alpha = -inf inside a chunk: gamma_i / gamma_j would be 0/0",
     .alpha = draws::resets,
     .needs = Needs::decay},
    {.name = "zero_channel",
     .why = "single key channels are cleared, the others live on",
     .alpha = draws::zero_channel,
     .needs = Needs::decay},
    {.name = "one_fast_channel",
     .why = "one channel decays by e^-6 a token, the others not at all: 1/gamma overflows",
     .alpha = draws::one_fast_channel,
     .needs = Needs::decay},
    {.name = "gate_floor",
     .why = "the lowest gate that bounded kernels allow, e^-5, for a whole chunk",
     .alpha = draws::floor_of_range,
     .needs = Needs::decay},
    {.name = "decay_underflow",
     .why = "64 decays of 0.1: gamma is 0 in fp32, 1/gamma is infinite",
     .alpha = draws::tenth,
     .needs = Needs::decay,
     .at = long_chunk},
    {.name = "heads_apart",
     .why = "decays differ tenfold between heads: a gate read per key head shows",
     .alpha = draws::by_head,
     .at = grouped},
    // Keys.
    {.name = "correlated_keys",
     .why = "keys at cosines of 0.9: powers of L grow, its inverse does not",
     .keys = draws::correlated,
     .alpha = draws::weak},
    {.name = "repeated_keys",
     .why = "one key, beta = 1: powers of L hold binomial coefficients, its inverse only 0 and 1",
     .keys = draws::repeated,
     .alpha = draws::weak,
     .beta = draws::one},
    {.name = "alternating_keys",
     .why = "k, -k, k, ...: sums over the chunk cancel",
     .keys = draws::alternating,
     .alpha = draws::weak},
    {.name = "one_hot_keys",
     .why = "a channel is overwritten many times or never",
     .keys = draws::one_hot,
     .queries = draws::one_hot},
    {.name = "zero_keys",
     .why = "padding tokens: a zero key must write nothing and break nothing",
     .keys = draws::with_zeros},
    {.name = "tiny_keys",
     .why = "norms of 1e-4: k k^T is below the range of fp16",
     .keys = draws::tiny,
     .queries = draws::tiny},
    {.name = "norm_ladder", .why = "norms 1, 1/128, 1/1024, 1/8192, 0 in one chunk", .keys = draws::norm_ladder},
    {.name = "raw_keys",
     .why = "keys not normalised: the inverse of I + L grows without bound",
     .keys = draws::normal,
     .queries = draws::normal,
     .judge = Judge::conditioned},
    // Strengths.
    {.name = "beta_zero",
     .why = "nothing is written: S_T is the decayed S_0",
     .beta = draws::zero_number,
     .needs = Needs::beta},
    {.name = "beta_one", .why = "the whole error is corrected each time", .beta = draws::one, .needs = Needs::beta},
    {.name = "beta_two",
     .why = "strengths up to 2: eigenvalues of the erase down to -1",
     .alpha = draws::weak,
     .beta = draws::to_two,
     .judge = Judge::conditioned,
     .needs = Needs::beta},
    {.name = "reflections",
     .why = "beta |k|^2 = 2 exactly: the erase is a reflection and forgets nothing",
     .keys = draws::half_entries,
     .alpha = draws::one,
     .beta = draws::two,
     .judge = Judge::conditioned},
    {.name = "small_writes",
     .why = "beta below 1/256: writes smaller than a bf16 step of the state",
     .alpha = draws::one,
     .beta = draws::small,
     .needs = Needs::beta},
    {.name = "lambda_zero",
     .why = "no query in the read key: the rule is then the gated delta rule",
     .lambda = draws::zero_number,
     .needs = Needs::lambda},
    {.name = "lambda_one",
     .why = "as much query as key in the read key: the erase is far from symmetric",
     .alpha = draws::weak,
     .lambda = draws::one,
     .judge = Judge::conditioned,
     .needs = Needs::lambda},
    // Values and states.
    {.name = "values_wide",
     .why = "values between 2^-8 and 2^8: a narrow range hides lost bits",
     .values = draws::wide},
    {.name = "no_state", .why = "no initial state given: it is zero, not whatever the memory held", .state = nullptr},
    {.name = "large_state",
     .why = "an initial state of 65536: beyond fp16, and it drowns what is written",
     .alpha = draws::weak,
     .state = draws::large,
     .judge = Judge::conditioned},
    {.name = "slack_nan", .why = "packed with an empty segment, and rows of NaN after the last", .at = with_slack},
    {.name = "growth",
     .why = "every error is corrected to 0, yet with lambda = 1 the state doubles every two tokens",
     .keys = draws::growth_keys,
     .queries = draws::growth_queries,
     .values = draws::zero,
     .alpha = draws::one,
     .beta = draws::growth_beta,
     .lambda = draws::one,
     .state = draws::first_column,
     .judge = Judge::conditioned},
    {.name = "signed_swap",
     .why = "k = e_i +- e_j, beta = 1, integer v: no rounding at all in any order of summation",
     .keys = draws::swaps,
     .queries = draws::swaps,
     .values = draws::small_integers,
     .alpha = draws::one,
     .beta = draws::one,
     .lambda = draws::zero_number,
     .state = draws::small_integers,
     .judge = Judge::equality},
};

/// Rows of a packed buffer that belong to no sequence.
template <class F> void for_slack(const Shape& z, F f) {
  for (Index t = 0; t < z.T && !z.offsets.empty(); ++t)
    if (t < z.offsets.front() || t >= z.offsets.back()) f(t);
}

}  // namespace

bool Family::concerns(const RuleInfo& rule) const {
  switch (needs) {
    case Needs::decay:
      return rule.forget != Forget::no;
    case Needs::beta:
      return rule.strength != Strength::no;
    case Needs::lambda:
      return rule.lambda;
    default:
      return true;
  }
}

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view name) {
  for (const Family& f : kFamilies)
    if (f.name == name) return &f;
  return nullptr;
}

Problem<double> draw(const RuleInfo& rule, const Family& f, const Size& size, std::uint64_t seed) {
  const Shape& z = size.shape;
  const bool integers = f.judge == Judge::equality;
  Random r(seed);
  auto bits8 = [](double x) { return kBf16.round(x); };
  // A tensor drawn head by head, so that neighbouring heads differ in everything.
  auto rows_like = [&](DrawRows like, Index heads, Index rows, Index cols) {
    Tensor<double> x(z.B, z.T, heads, cols, rows);
    for (Index b = 0; b < z.B; ++b)
      for (Index h = 0; h < heads; ++h)
        for (Index m = 0; m < rows; ++m) {
          Mat<double> K(z.T, cols);
          if (z.T > 0) like(K, r);
          for (Index t = 0; t < z.T; ++t)
            for (Index i = 0; i < cols; ++i) x.at(b, t, h)[m * cols + i] = bits8(K(t, i));
        }
    return x;
  };
  auto numbers_like = [&](DrawNumber like, Index rows, Index cols) {
    Tensor<double> x(z.B, z.T, z.HV, cols, rows);
    for (Index b = 0; b < z.B; ++b)
      for (Index t = 0; t < z.T; ++t)
        for (Index h = 0; h < z.HV; ++h)
          for (Index i = 0; i < rows * cols; ++i) x.at(b, t, h)[i] = bits8(like({t, i % cols, h, size.C}, r));
    return x;
  };

  Problem<double> p{.shape = z};
  p.q = rows_like(f.queries, z.H, 1, z.d_k);
  p.k = rows_like(f.keys, z.H, 1, z.d_k);
  p.v = rows_like(f.values, z.HV, 1, z.d_v);
  if (rule.strength != Strength::no) p.beta = numbers_like(f.beta, 1, rule.strength == Strength::per_value ? z.d_v : 1);
  if (rule.forget != Forget::no) p.alpha = numbers_like(f.alpha, 1, rule.forget == Forget::per_channel ? z.d_k : 1);
  if (rule.lambda) p.lambda = numbers_like(f.lambda, 1, 1);
  // A key of its own would turn the reflections of the integer family into maps that grow: there it is k again.
  auto k_again = [&] {
    Tensor<double> x(z.B, z.T, z.HV, z.d_k);
    for (Index b = 0; b < z.B; ++b)
      for (Index t = 0; t < z.T; ++t)
        for (Index h = 0; h < z.HV; ++h) std::copy_n(p.k.at(b, t, z.key_head(h)), z.d_k, x.at(b, t, h));
    return x;
  };
  auto further = [&](const Input& i) {
    const Index rows = i.more ? z.n_h - 1 : 1, cols = z.width(i.extent);
    if (i.like == Like::key) return integers && !i.more ? k_again() : rows_like(f.keys, z.HV, rows, cols);
    if (i.like == Like::value) return rows_like(f.values, z.HV, rows, cols);
    return numbers_like(integers ? draws::one : i.like == Like::beta ? f.beta : draws::uniform, rows, cols);
  };
  for (const Input& i : rule.inputs) p.inputs.push_back(further(i));
  if (f.state)
    for (Index lane = 0; lane < z.sequences() * z.HV; ++lane) {
      Mat<double> S(z.d_v, z.d_k);
      f.state(S, r);
      p.S0.push_back(S.unaryExpr(bits8));
    }
  p.scale = integers ? 1 : bits8(1 / std::sqrt(static_cast<double>(z.d_k)));

  auto poison = [&](Tensor<double>& x) {
    for_slack(z, [&](Index t) {
      if (!x.empty()) std::fill_n(x.at(0, t, 0), x.heads * x.rows * x.cols, std::numeric_limits<double>::quiet_NaN());
    });
  };
  for (Tensor<double>* x : {&p.q, &p.k, &p.v, &p.beta, &p.alpha, &p.lambda}) poison(*x);
  for (Tensor<double>& x : p.inputs) poison(x);
  return p;
}

}  // namespace delta
