// SPDX-License-Identifier: Apache-2.0
#include "checks/core/families.hpp"

#include "reference/scalars/rounded.hpp"

namespace delta {
namespace {

namespace keys {
void normal(Mat<double>& K, Random& r) {
  for (Index t = 0; t < K.rows(); ++t)
    for (Index i = 0; i < K.cols(); ++i) K(t, i) = r.normal();
}
void unit(Mat<double>& K, Random& r) {
  normal(K, r);
  for (Index t = 0; t < K.rows(); ++t) {
    double n2 = 0;
    for (Index i = 0; i < K.cols(); ++i) n2 += K(t, i) * K(t, i);
    K.row(t) /= std::sqrt(n2);
  }
}
void repeated(Mat<double>& K, Random& r) {
  unit(K, r);
  for (Index t = 1; t < K.rows(); ++t) K.row(t) = K.row(0);
}
}  // namespace keys

namespace gate {
double weak(Index, Random& r) { return 1 - r.uniform(0, 1. / 64); }
double mild(Index, Random& r) { return r.uniform(0.75, 1); }
double strong(Index, Random& r) { return r.uniform(0.05, 0.5); }
double with_resets(Index t, Random& r) { return t % 5 == 3 ? 0 : r.uniform(0.75, 1); }
}  // namespace gate

namespace number {
double uniform(Index, Random& r) { return r.uniform(); }
double one(Index, Random&) { return 1; }
}  // namespace number

constexpr Family kFamilies[] = {
    {"unit_mild", "unit keys, mild gates: the easy baseline", keys::unit, gate::mild, number::uniform, number::uniform},
    {"unit_weak", "weak gates: the initial state and early tokens matter at the end", keys::unit, gate::weak,
     number::uniform, number::uniform},
    {"unit_strong", "strong gates: the old state fades within a few tokens", keys::unit, gate::strong, number::uniform,
     number::uniform},
    {"alpha_zero", "a reset inside a chunk: gamma_i / gamma_j would be 0/0", keys::unit, gate::with_resets,
     number::uniform, number::uniform},
    {"repeated_keys", "one key, beta = 1: powers of L hold binomial coefficients, its inverse only 0 and 1",
     keys::repeated, gate::weak, number::one, number::uniform},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view name) {
  for (const Family& f : kFamilies)
    if (f.name == name) return &f;
  return nullptr;
}

Problem<double> draw(const RuleInfo& rule, const Family& f, const Shape& z, std::uint64_t seed) {
  Random r(seed);
  auto bits8 = [](double x) { return kBf16.round(x); };
  // A tensor drawn head by head, so that neighbouring heads differ in everything.
  auto rows_like = [&](KeysLike like, Index heads, Index rows, Index cols) {
    Tensor<double> x(z.B, z.T, heads, cols, rows);
    for (Index b = 0; b < z.B; ++b)
      for (Index h = 0; h < heads; ++h)
        for (Index m = 0; m < rows; ++m) {
          Mat<double> K(z.T, cols);
          like(K, r);
          for (Index t = 0; t < z.T; ++t)
            for (Index i = 0; i < cols; ++i) x.at(b, t, h)[m * cols + i] = bits8(K(t, i));
        }
    return x;
  };
  auto numbers_like = [&](NumberLike like, Index rows, Index cols) {
    Tensor<double> x(z.B, z.T, z.HV, cols, rows);
    for (Index b = 0; b < z.B; ++b)
      for (Index t = 0; t < z.T; ++t)
        for (Index h = 0; h < z.HV; ++h)
          for (Index i = 0; i < rows * cols; ++i) x.at(b, t, h)[i] = bits8(like(t, r));
    return x;
  };

  Problem<double> p{.shape = z};
  p.q = rows_like(f.keys, z.H, 1, z.d_k);
  p.k = rows_like(f.keys, z.H, 1, z.d_k);
  p.v = rows_like(keys::normal, z.HV, 1, z.d_v);
  if (rule.strength != Strength::no) p.beta = numbers_like(f.beta, 1, rule.strength == Strength::per_value ? z.d_v : 1);
  if (rule.forget != Forget::no) p.alpha = numbers_like(f.alpha, 1, rule.forget == Forget::per_channel ? z.d_k : 1);
  if (rule.lambda) p.lambda = numbers_like(f.lambda, 1, 1);
  for (const Input& i : rule.inputs) {
    const Index rows = i.more ? z.n_h - 1 : 1, cols = z.width(i.extent);
    p.inputs.push_back(i.like == Like::key ? rows_like(f.keys, z.HV, rows, cols)
                       : i.like == Like::value
                           ? rows_like(keys::normal, z.HV, rows, cols)
                           : numbers_like(i.like == Like::beta ? f.beta : number::uniform, rows, cols));
  }
  if (f.initial_state)
    for (Index lane = 0; lane < z.sequences() * z.HV; ++lane) {
      Mat<double> S(z.d_v, z.d_k);
      keys::normal(S, r);
      p.S0.push_back(S.unaryExpr(bits8));
    }
  p.scale = bits8(1 / std::sqrt(static_cast<double>(z.d_k)));
  return p;
}

}  // namespace delta
