// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "checks/core/measure.hpp"
#include "checks/mutants/mutants.inl"
#include "reference/core/random.hpp"
#include "reference/gradient/gradient.hpp"
#include "reference/scalars/convert.hpp"

namespace delta {

/// A kernel with that mistake: what it takes, computes with, computes and returns, as far as it is wrong there.
template <Ring T> Result<T> compute_wrongly(const Rule& rule, const Mutant<T>& m, Index C, const Problem<T>& right) {
  Problem<T> p = taken<T>(right, m.input);
  if (m.scale) p.scale = m.scale(p.scale);
  const auto once = [&] {
    return run<T>(rule.info, rule.over<T>(), p, [&](Stream<T> s) {
      if (m.stream) m.stream(s);
      return m.form ? m.form(s, C) : recurrent<T>(s);
    });
  };
  Result<T> out = once();
  if (m.input.segment_leak && !p.shape.offsets.empty())
    for (Index n = 1; n < p.shape.sequences(); ++n) {  // what a sequence leaves is what the next one starts from
      const auto HV = static_cast<std::size_t>(p.shape.HV), before = static_cast<std::size_t>(n - 1) * HV;
      p.S0.resize(out.size(), Mat<T>::Zero(p.shape.d_v, p.shape.d_k));
      for (std::size_t j = 0; j < HV; ++j) p.S0[before + HV + j] = out[before + j].S;
      out = once();
    }
  if (m.output)
    for (Output<T>& lane : out) m.output(lane);
  return out;
}

template <Ring T> Result<T> compute(const Rule& rule, std::string_view form, Index C, const Problem<T>& p) {
  if (const Mutant<T>* m = find_mutant<T>(form)) return compute_wrongly<T>(rule, *m, C, p);
  const Form<T>& f = *find_form<T>(form);
  return run<T>(rule.info, rule.over<T>(), taken<T>(p, {}), [&](const Stream<T>& s) { return f.run(s, C); });
}

template <Ring T>
Result<T> compute_watched(const Rule& rule, std::string_view form, Index C, const Problem<T>& p, Intermediates& shown) {
  std::size_t streams = 0;
  auto show = [&](const char* name, const Mat<T>& M) {
    std::vector<std::vector<Mat<double>>>& of = shown[name];
    of.resize(streams);
    of.back().push_back(M.unaryExpr([](const T& x) { return convert<double>(x) + 0.0; }).template cast<double>());
  };
  auto inverse = [](const Mat<T>& L) { return solve_unit_lower<T>(L, Mat<T>::Identity(L.rows(), L.rows())); };
  if (find_mutant<T>(form)) return compute<T>(rule, form, C, p);  // a wrong form shows nothing
  const Result<T> result = run<T>(rule.info, rule.over<T>(), taken<T>(p, {}), [&](const Stream<T>& s) {
    ++streams;
    if (form == "chunkwise")
      return chunkwise<T>(s, C, [&](const Chunk<T>& c) {
        show("gamma", c.gamma), show("H", c.H), show("L", c.L), show("L_g", c.L_g);
        show("L_inverse", inverse(c.L)), show("L_g_inverse", inverse(c.L_g));
        show("W", c.W), show("U", c.U), show("Z", c.Z), show("S", c.S);
      });
    if (form == "one_solve")
      return one_solve<T>(s, C, [&](const OneSolve<T>& c) {
        show("L", c.L), show("L_inverse", inverse(c.L)), show("P_bar", c.P_bar), show("U", c.U), show("Z", c.Z);
        show("Y_out", c.Y_out), show("A", c.A), show("Q_in", c.Q_in), show("S", c.S);
      });
    if (form == "parallel") return parallel<T>(s, [&](const Parallel<T>& c) { show("A", c.A), show("Q_in", c.Q_in); });
    if (form == "scan") return scan<T>(s, C, [&](const Affine<T>& a) { show("A", a.A), show("U", a.U); });
    return recurrent<T>(s, [&](const MicroStepTrace<T>& c) {
      show("e_prior", c.e_prior), show("e_posterior", c.e_posterior), show("S", c.S);
    });
  });
  for (auto& [name, of] : shown) of.resize(streams);  // the last sequences may be empty
  return result;
}

template <Ring T> Result<T> compute_paper(const Rule& rule, const Problem<T>& p) {
  return run_paper<T>(rule.info, rule.over<T>(), taken<T>(p, {}));
}

template <Ring T> Problem<T> compute_gradient(const Rule& rule, const Problem<T>& p, const Result<T>& d) {
  return gradient<T>(rule.info, rule.over<T>(), p, d);
}

template <Ring T> Problem<T> over(const Problem<double>& p) {
  return p.map<T>([](double x) {
    if (Scalar<T>::exact && !std::isfinite(x)) return convert<T>(1e6);  // no NaN there: what is poisoned is only large
    return convert<T>(x);
  });
}

/// A uniformly random element of an exact scalar: the whole field, or small fractions that stay readable.
template <Ring T> T random_element(Random& r) {
  if constexpr (std::is_same_v<T, GF61>)
    return GF61::from_residue(r.bits() >> 3);
  else if constexpr (std::is_same_v<T, Dual<GF61>>)
    return {random_element<GF61>(r), random_element<GF61>(r)};
  else if constexpr (std::is_same_v<T, Rational>)
    return Rational(static_cast<int>(r.below(19)) - 9) / Rational(1 + static_cast<int>(r.below(3)));
  else
    return convert<T>(r.normal());
}

template <Ring T> Problem<T> generic(const Problem<double>& like, std::uint64_t seed) {
  Random r(seed);
  return like.map<T>([&](double) { return random_element<T>(r); });
}

}  // namespace delta
