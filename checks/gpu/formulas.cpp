// SPDX-License-Identifier: Apache-2.0
#include "checks/gpu/judges.hpp"

namespace delta::gpu {
namespace {

/// What v1 wrote of one sequence and head, token by token.
Quantities traced_tokens(const Answer& a, const Shape& z, Index n, Index h) {
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Quantities q;
  for (const auto& [name, x] : a.traces) {
    const Index rows = name == "states" ? z.d_v : 1, columns = name == "states" ? z.d_k : z.d_v;
    Mat<double> all(z.length(n) * rows, columns);
    for (Index t = 0; t < z.length(n); ++t) {
      const Index at = (z.batch(n) * z.T + z.begin(n) + t) * z.HV + h;
      all.middleRows(t * rows, rows) = Eigen::Map<const RowMajor>(x.data() + at * rows * columns, rows, columns);
    }
    q[name] = all;
  }
  return q;
}

/// Lemma 3.1 on a kernel's own numbers: e_t = (1 - beta a) e~_t with a = y.x. What rounding may leave of it is relative
/// to the size of what is subtracted. \param u  unit roundoff   \formula{F89}
double lemma(const Stream<double>& s, const Quantities& own, double u) {
  double worst = 0;
  for (Index t = 0; t < s.tokens(); ++t) {
    const MicroStep<double>& m = s.steps[static_cast<std::size_t>(t)];
    const double factor = 1 - m.beta * m.y.dot(m.x);
    const Mat<double> S = own.at("states").middleRows(t * s.d_v(), s.d_v());
    const Vec<double> prior = own.at("e_prior").row(t), posterior = own.at("e_posterior").row(t);
    const double size = m.v.cwiseAbs().maxCoeff() + (S.cwiseAbs() * m.x.cwiseAbs()).maxCoeff() +
                        prior.cwiseAbs().maxCoeff() * (1 + m.beta * m.y.cwiseAbs().dot(m.x.cwiseAbs()));
    worst = std::max(worst, ratio_of((posterior - factor * prior).cwiseAbs().maxCoeff(), 8 * u * size));
  }
  return worst;
}

/// The tracking bound on a kernel's own numbers: e~_t = e_{t-1} + r_t, r_t = v_t - v_{t-1} - S_{t-1}(x_t - x_{t-1}) +
/// (1 - alpha) S_{t-1} x_t. \return |e_t| over its bound, or nothing where it does not contract
/// \formula{F92} \formula{F95}
std::optional<double> tracking(const Stream<double>& s, const Quantities& own, double u) {
  double rho = 0, drift = 0;
  for (Index t = 1; t < s.tokens(); ++t) {
    const MicroStep<double>&m = s.steps[static_cast<std::size_t>(t)],
          &before = s.steps[static_cast<std::size_t>(t - 1)];
    const Mat<double> S = own.at("states").middleRows((t - 1) * s.d_v(), s.d_v());
    const Vec<double> r = m.v - before.v - S * (m.x - before.x) + S * (m.x - m.d * m.x);
    rho = std::max(rho, std::abs(1 - m.beta * m.y.dot(m.x))), drift = std::max(drift, r.norm());
  }
  if (!(rho < 1) || s.tokens() < 2) return {};
  const Mat<double>& e = own.at("e_posterior");
  double worst = 0, power = 1;
  for (Index t = 1; t < s.tokens(); ++t) {
    power *= rho;
    const double radius = power * e.row(0).norm() + rho * (1 - power) / (1 - rho) * drift;
    worst = std::max(worst, e.row(t).norm() / (radius * (1 + 1e4 * u) + 1e3 * u * drift));
  }
  return worst;
}

}  // namespace

void judge_tokens(const Case& c, Model& model, const Call& call, const Report& report) {
  const Answer got = run_on_device(c.rule.info, c.given, with_trace(call));
  if (!model.outside(got.plan, call.dtype).empty()) return;
  const Shape& z = c.shape();
  const double u = wide_format(call.dtype).unit();
  Quantities want, have;
  double off = 0;
  std::optional<double> tracked;
  for (Index n = 0; n < z.sequences(); ++n)
    for (Index h = 0; h < z.HV; ++h) {
      const Quantities own = traced_tokens(got, z, n, h);
      for (const auto& [name, x] : exact_quantities(c, got.plan, n, h))
        append(want[name], x), append(have[name], own.at(name));
      const Stream<double> s = c.stream<double>(n, h);
      off = std::max(off, lemma(s, own, u));
      if (const auto r = tracking(s, own, u)) tracked = std::max(tracked.value_or(0), *r);
    }
  const std::map<std::string, double> allowed = model.quantities(got.plan, call.dtype);
  for (const auto& [name, x] : want) report(judged(c.row(call, name), apart(x, have[name]), allowed.at(name)));
  Row row = c.row(call, "F89: e_t = (1 - beta a) e~_t");
  row.ratio = off, row.verdict = judge(off);
  report(row);
  if (tracked) {
    row = c.row(call, "F92: tracking bound");
    row.ratio = *tracked, row.verdict = *tracked <= 1 ? Verdict::passed : Verdict::failed;
    report(row);
  }
}

void judge_chunks(const Case& c, Model& model, const Call& call, const Report& report) {
  const Answer got = run_on_device(c.rule.info, c.given, with_trace(call));
  const Shape& z = c.shape();
  if (!model.outside(got.plan, call.dtype).empty()) return;
  std::map<std::string, double> error;
  for (Index n = 0; n < z.sequences(); ++n)
    for (Index h = 0; h < z.HV; ++h) {
      if (z.length(n) == 0) continue;
      const Quantities have = traced(got, z, n, h);
      for (const auto& [name, x] : exact_quantities(c, got.plan, n, h))
        if (have.contains(name)) error[name] = std::max(error[name], apart(x, have.at(name)));
    }
  const std::map<std::string, double> allowed = model.quantities(got.plan, call.dtype);
  for (const auto& [name, e] : error) report(judged(c.row(call, name), e, allowed.at(name)));
}

}  // namespace delta::gpu
