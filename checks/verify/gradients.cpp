// SPDX-License-Identifier: Apache-2.0
// Gradients are judged as outputs are: the adjoint of the recurrence in double is the reference, rounded adjoints of
// recurrence and chunks say what correct code makes.
#include <algorithm>
#include <cmath>
#include <map>

#include "checks/verify/lanes.hpp"
#include "checks/verify/rounded_adjoint.hpp"
#include "reference/gradient/gradient.hpp"
#include "reference/gradient/one_solve_adjoint.hpp"

namespace delta {
namespace {

/// Gradients by tensor and head. Value heads that share a key head add up in dq and dk.
using Gradients = std::map<std::pair<std::string, Index>, Mat<double>>;

void add(Gradients& sum, const Subject& s, const Problem<double>& gradient, Index n, Index j, bool parts_stored) {
  for (auto& [tensor, part] : s.gradient_tensors(gradient, n, j)) {
    const bool shared = s.by_key_head(tensor);
    const Mat<double> x = shared && parts_stored ? stored(part, s.format_of(tensor)) : part;
    Mat<double>& to = sum[{tensor, shared ? s.shape().key_head(j) : j}];
    to = to.size() == 0 ? x : Mat<double>(to + x);
  }
}

/// The gradient of one lane through the adjoint of some form, in scalar T.
template <Real T> Problem<double> lane_gradient(const Subject& s, Index n, Index j, const AdjointForm<T>& form) {
  Problem<T> p = s.lane<T>(n, j);
  p.scale = T(s.scale());
  const Output<double> d = s.output_gradient(n, j);
  const auto widen = [](double x) { return T(x); };
  return gradient<T>(s.rule().info, s.rule().over<T>(), p,
                     {{d.O.unaryExpr(widen).template cast<T>(), d.S.unaryExpr(widen).template cast<T>()}}, form)
      .template map<double>([](const T& x) { return Scalar<T>::to_double(x); });
}

template <Real T> StreamAdjoint<T> recurrent_form(const Stream<T>& s, const Mat<T>& dO, const Mat<T>& dS) {
  return recurrent_adjoint<T>(s, dO, dS);
}
StreamAdjoint<double> one_solve_form(const Stream<double>& s, const Mat<double>& dO, const Mat<double>& dS) {
  return one_solve_adjoint<double>(s, dO, dS, 32);
}

/// The same as a kernel of that schedule computes it.
Problem<double> drawn_gradient(const Plan& plan, Index n, Index j, const Schedule& how) {
  const Subject& s = plan.subject;
  return gradient<double>(s.rule().info, s.rule().over<double>(), s.lane<double>(n, j), {s.output_gradient(n, j)},
                          [&](const Stream<double>& st, const Mat<double>& dO, const Mat<double>& dS) {
                            return plan.wide ? simulate_adjoint<double>(st, s.scale(), dO, dS, how)
                                             : simulate_adjoint<float>(st, s.scale(), dO, dS, how);
                          });
}

/// How many numbers decide on the worst row: those of the rows that are large, n of one size counting as n. The
/// gradient of beta is one number a token, and where one token outweighs the others its error is that of a single sum.
Index telling(const Mat<double>& A) {
  const Vec<double> square = A.rowwise().squaredNorm();
  const double fourth = square.squaredNorm();
  if (!(fourth > 0)) return A.size();
  return static_cast<Index>(std::ceil(square.sum() / fourth * square.sum() * static_cast<double>(A.cols())));
}

/// The error of so few numbers may be near zero in every draw that rounds where the kernel does: of twenty draws two
/// have chunks of 16. Such a tensor fails only after more draws; one that has passed would pass after them as well.
constexpr Index kFew = 16;

}  // namespace

std::vector<Measured> judge_gradients(const Plan& plan, Index n, Index h, bool certify) {
  const Subject& s = plan.subject;
  const Shape& z = s.shape();
  const Index share = z.HV / z.H;
  Gradients want, other, tf32;
  std::vector<Gradients> draws;
  const auto drawn = [&](const Schedule& how) {
    Gradients sum;
    for (Index j = h * share; j < (h + 1) * share; ++j)
      add(sum, s, drawn_gradient(plan, n, j, how), n, j, !how.one_solve);
    return sum;
  };
  for (const Schedule& how : plan.draws) draws.push_back(drawn(how));
  const bool fp32 = s.operands().p == kFp32.p;
  for (Index j = h * share; j < (h + 1) * share; ++j) {
    add(want, s, lane_gradient<double>(s, n, j, recurrent_form<double>), n, j, false);
    if (fp32) add(tf32, s, drawn_gradient(plan, n, j, {.operand = kTf32, .inverse = kTf32}), n, j, false);
    if (certify)
      add(other, s,
          plan.certify_all ? lane_gradient<DoubleDouble>(s, n, j, recurrent_form<DoubleDouble>)
                           : lane_gradient<double>(s, n, j, one_solve_form),
          n, j, false);
  }

  std::vector<Measured> all;
  const auto judge_tensor = [&](const std::string& tensor, Index head) {
    const std::pair place{tensor, head};
    Mat<double>& exact = want.at(place);
    const bool state = tensor == "d_initial_state";
    const Format& format = s.format_of(tensor);
    Measured m{.tensor = tensor,
               .measure = state ? Measure::whole : Measure::worst_row,
               .n = n,
               .head = head,
               .b = state ? n : z.batch(n),
               .first_row = state ? 0 : z.begin(n),
               .numbers = state ? std::min(z.length(n), z.d_k) * z.d_v : telling(exact),
               .expected = last_rounding(format, plan.wide)};
    if (certify) {
      const Mat<double>& second = other.at(place);
      m.reference = plan.wide ? kFp64.unit() : relative_error(second, exact - second, m.measure);
      if (plan.wide) exact = second;
    }
    const auto error = [&](const Gradients& x) {
      return relative_error(exact, stored(x.at(place), format) - exact, m.measure);
    };
    const auto raise = [&](const Gradients& x) {
      const double e = error(x);
      m.expected = std::max(m.expected, e), m.least = std::min(m.least, e);
    };
    m.least = INFINITY;
    for (std::size_t i = 0; i < plan.draws.size(); ++i) raise(draws[i]);
    if (fp32) m.tf32 = error(tf32);
    const Mat<double> got = s.candidate_gradient(tensor, n, head);
    compare(m, exact, got);
    const auto in_doubt = [&] { return m.numbers <= kFew && judge(ratio_of(m.error, m.expected)) != Verdict::passed; };
    for (std::size_t i = plan.draws.size(), all_draws = i + plan.more.size(); in_doubt() && i < all_draws; ++i) {
      if (i == draws.size()) draws.push_back(drawn(plan.more[i - plan.draws.size()]));
      raise(draws[i]);
    }
    m.well_posed = exact.allFinite() && m.expected < kIllPosed;
    locate(m, exact, got);
    all.push_back(std::move(m));
  };
  for (const std::string& tensor : s.gradients())
    for (Index head = s.by_key_head(tensor) ? h : h * share; head < (s.by_key_head(tensor) ? h + 1 : (h + 1) * share);
         ++head)
      judge_tensor(tensor, head);
  return all;
}

}  // namespace delta
