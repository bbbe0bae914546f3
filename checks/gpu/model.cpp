// SPDX-License-Identifier: Apache-2.0
#include "checks/gpu/model.hpp"

#include "gpu/schedule/hopper.hpp"
#include "gpu/schedule/tensor_cores.hpp"

namespace delta::gpu {
namespace {

constexpr Format draw_format(int p) { return {"draw", p, -1022, 1023}; }
/// Each is a draw of the rounding errors of correct code; errors scale with 2^-p.
constexpr Format kDraws[] = {draw_format(19), draw_format(21), draw_format(23), draw_format(25)};
constexpr double kFloor = 1;  ///< of any error, in units of the unit roundoff
/// v4 beside what its 16-bit operands make, in units of fp32: tensor cores truncate where they align the products of a
/// sum, the inverse works on pairs of tf32 numbers (21 bits), and 2^x is one instruction of 2 ulp.
constexpr double kTensorCoreSums = 8, kTensorCoreFloor = 64;

const char* form_of(std::int32_t version) {
  constexpr const char* names[] = {"", "tokens", "recurrent", "chunkwise", "one_solve", "errors", "errors", "squares"};
  static_assert(std::size(names) == DELTAREF_NEWEST + 1);
  return names[version];
}

/// What the form of that name shows, over T.
template <Ring T> Quantities shown(const std::string& form, const Stream<T>& s, Index C, bool per_channel) {
  if (form == "chunkwise") return chunk_quantities(s, C);
  if (form == "one_solve") return solve_quantities(s, C, per_channel);
  if (form == "errors" || form == "squares") return error_quantities(s, C, form == "errors" ? C : Tiles{}.square());
  Quantities q;
  token_by_token(s, &q);
  return q;
}

/// Calls use(n, h) with each value head of each sequence.
template <class F> void each_head(const Shape& z, F use) {
  for (Index n = 0; n < z.sequences(); ++n)
    for (Index h = 0; h < z.HV; ++h) use(n, h);
}

}  // namespace

Expected Model::outputs(const deltaref_gpu_plan_t& plan, std::int32_t dtype) {
  const Case& c = case_;
  const double u = wide_format(dtype).unit();
  if (plan.version >= DELTAREF_V4) {
    const auto [known, is_new] = scheduled_.try_emplace({plan.version, dtype, plan.segments});
    if (is_new) known->second = scheduled_outputs(plan, format_of(dtype));
    return known->second;
  }
  if (dtype >= DELTAREF_FP32 && c.family.judge == Judge::equality) return {0, 0};
  const Expected& e = form(form_of(plan.version), plan.chunk);
  const double output = dtype <= DELTAREF_FP16 ? format_of(dtype).unit() : 0;
  return {(e.o + kFloor) * u + output, (e.state + kFloor) * u};
}

/// Of the versions on 16-bit operands: what their schedule makes, and the sums.
Expected Model::scheduled_outputs(const deltaref_gpu_plan_t& plan, const Format& f) {
  const Case& c = case_;
  Result<double> twin;
  if (plan.version == DELTAREF_V4)
    twin = run<double>(c.rule.info, c.rule.over<double>(), c.meant,
                       [&](const Stream<double>& s) { return tensor_cores(s, f); });
  else
    each_head(c.shape(), [&](Index n, Index h) {
      twin.push_back(hopper(c.head(n, h), solve_of(plan), SixteenBits{f}, plan.segments));
    });
  const Distance d = distance(c.exact, twin);
  const Expected s = sums();
  // The schedule of v4 is given normalised rows; in the kernel the norm is a factor of what is written and rounded.
  const double norms = c.variant == Variant::l2norm && plan.version == DELTAREF_V4 ? f.unit() : 0;
  return {d.o + s.o + norms, d.state + s.state + norms};
}

Expected Model::sums() {
  const Expected& e = form("one_solve", 64);
  return {(kTensorCoreSums * e.o + kTensorCoreFloor) * kFp32.unit(),
          (kTensorCoreSums * e.state + kTensorCoreFloor) * kFp32.unit()};
}

std::map<std::string, double> Model::quantities(const deltaref_gpu_plan_t& plan, std::int32_t dtype) {
  const double u = wide_format(dtype).unit();
  const bool tensor_cores = plan.version >= DELTAREF_V4;
  std::map<std::string, double> allowed;
  if (tensor_cores)
    each_head(case_.shape(), [&](Index n, Index h) {
      const Quantities want = exact_quantities(case_, plan, n, h);
      for (const auto& [name, x] : scheduled(case_, plan, format_of(dtype), n, h))
        allowed[name] = std::max(allowed[name], apart(want.at(name), x));
    });
  const double factor = tensor_cores ? kTensorCoreSums : 1, floor = tensor_cores ? kTensorCoreFloor : kFloor;
  for (const auto& [name, error] : form_quantities(form_of(plan.version), plan.chunk))
    allowed[name] += (factor * error + floor) * u;
  return allowed;
}

std::string Model::outside(const deltaref_gpu_plan_t& plan, std::int32_t dtype) const {
  const bool conditioned = case_.family.judge == Judge::conditioned;
  if (!conditioned && dtype != DELTAREF_FP16) return "";
  const double largest = dtype == DELTAREF_FP16 ? 65504 : dtype == DELTAREF_FP64 ? 1e300 : 3e38;
  for (const auto& lane : case_.exact)
    if (lane.O.size() && as_double<DoubleDouble>(lane.O).cwiseAbs().maxCoeff() > largest)
      return "the output is outside its range";
  if (dtype == DELTAREF_FP64 || !conditioned) return "";
  const Working::Scope scope(kFp32);
  const char* const form = plan.version <= DELTAREF_V2   ? "recurrent"
                           : plan.version == DELTAREF_V3 ? "chunkwise"
                                                         : "one_solve";
  for (const auto& lane : compute<AnyFormat>(case_.rule, form, plan.chunk, over<AnyFormat>(case_.meant)))
    if (!as_double<AnyFormat>(lane.O).allFinite() || !as_double<AnyFormat>(lane.S).allFinite())
      return "an intermediate is outside its range";
  return "";
}

/// The errors of a form in rounded scalars, in units of the unit roundoff, the largest of the draws.
const Expected& Model::form(const std::string& name, Index C) {
  const auto known = forms_.find(name);
  if (known != forms_.end()) return known->second;
  Expected worst;
  for (const Format& f : kDraws) {
    const Working::Scope scope(f);
    const Problem<AnyFormat> p = over<AnyFormat>(case_.meant);
    const Result<AnyFormat> got = name == "tokens"
                                      ? run<AnyFormat>(case_.rule.info, case_.rule.over<AnyFormat>(), p,
                                                       [](const Stream<AnyFormat>& s) { return token_by_token(s); })
                                      : compute<AnyFormat>(case_.rule, name, C, p);
    const Distance d = distance(case_.exact, got);
    worst.o = std::max(worst.o, d.o / f.unit()), worst.state = std::max(worst.state, d.state / f.unit());
  }
  return forms_.emplace(name, worst).first->second;
}

/// The same of its intermediates, over heads and draws.
const std::map<std::string, double>& Model::form_quantities(const std::string& name, Index C) {
  auto& errors = form_quantities_[name + std::to_string(C)];
  if (!errors.empty()) return errors;
  each_head(case_.shape(), [&](Index n, Index h) {
    const Quantities exact = shown(name, case_.stream<double>(n, h), C, case_.per_channel());
    for (const Format& f : kDraws) {
      const Working::Scope scope(f);
      for (const auto& [quantity, x] : shown(name, case_.stream<AnyFormat>(n, h), C, case_.per_channel()))
        errors[quantity] = std::max(errors[quantity], apart(exact.at(quantity), x) / f.unit());
    }
  });
  return errors;
}

Quantities exact_quantities(const Case& c, const deltaref_gpu_plan_t& plan, Index n, Index h) {
  return shown(form_of(plan.version), c.stream<DoubleDouble>(n, h), plan.chunk, c.per_channel());
}

}  // namespace delta::gpu
