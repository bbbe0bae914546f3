// SPDX-License-Identifier: Apache-2.0
#include "checks/core/equivalence.hpp"

#include <algorithm>

#include "checks/core/measure.hpp"

namespace delta {
namespace {

bool chosen(const std::vector<std::string>& list, std::string_view name) {
  return list.empty() || std::ranges::find(list, name) != list.end();
}

/// Formats of p bits and a double's range: only the roundings differ between them, so each is a draw of the rounding
/// errors that correct code makes, and errors scale with 2^-p.
constexpr Format kDraws[] = {{"22 bits", 22, -1022, 1023},
                             {"23 bits", 23, -1022, 1023},
                             {"24 bits", 24, -1022, 1023},
                             {"25 bits", 25, -1022, 1023}};

/// One rule on one family at one shape, every form and scalar.
class Case {
 public:
  Case(const Rule& rule, const Family& family, const Shape& shape, Index C, std::uint64_t seed)
      : rule_(rule), family_(family), C_(C), seed_(seed), p_(draw(rule.info, family, shape, seed)) {}

  Row blank(std::string_view form, std::string_view scalar) const {
    return {.rule = std::string(rule_.info.id),
            .form = std::string(form),
            .against = "paper",
            .scalar = std::string(scalar),
            .family = std::string(family_.name),
            .shape = p_.shape.text() + "_C" + std::to_string(C_),
            .kind = "",
            .seed = seed_};
  }

  bool can(std::string_view form) const { return applies(rule_, form, p_); }

  /// Equality with the printed formula, on the family's numbers and at a random point of the ring.
  template <Ring T> Row exact(std::string_view form) const {
    Row row = blank(form, Scalar<T>::name);
    row.kind = "exact";
    const bool equal = equal_on(form, over<T>(p_)) && equal_on(form, generic<T>(p_, seed_));
    row.verdict = equal ? Verdict::passed : Verdict::failed;
    if (!equal) row.ratio = INFINITY, row.reason = "not equal";
    return row;
  }

  /// The error against a wider scalar J, over the error that this form makes in that precision.
  template <Real T, Real J> Row ratio(std::string_view form, std::string_view scalar, double unit) {
    Row row = blank(form, scalar);
    row.kind = "ratio";
    const Distance d = distance(wanted<J>(), compute<T>(rule_, form, C_, over<T>(p_)));
    const Distance e = expected(form);
    if (d.all_zero) return row.verdict = Verdict::untrusted, row.reason = "the exact result is zero", row;
    if (std::max(e.o, e.state) * unit > 0.1)
      return row.verdict = Verdict::untrusted, row.reason = "ill-posed in this precision", row;
    row.ratio = std::max(d.o / ((e.o + 1) * unit), d.state / ((e.state + 1) * unit));
    row.verdict = judge(row.ratio);
    if (row.verdict == Verdict::failed && d.worst)
      row.reason = std::string(d.worst->tensor) + "[" + std::to_string(d.worst->row) + "," +
                   std::to_string(d.worst->column) + "]";
    return row;
  }

  Row rounded(std::string_view form, const Format& f) {
    const Working::Scope scope(f);
    return ratio<AnyFormat, DoubleDouble>(form, f.name, f.unit());
  }

 private:
  template <Ring T> bool equal_on(std::string_view form, const Problem<T>& p) const {
    const Result<T> want = compute_paper<T>(rule_, p), got = compute<T>(rule_, form, C_, p);
    return std::ranges::equal(want, got,
                              [](const Output<T>& a, const Output<T>& b) { return a.O == b.O && a.S == b.S; });
  }

  template <Real J> const Result<J>& wanted() {
    auto& want = std::get<Result<J>>(wanted_);
    if (want.empty()) want = compute_paper<J>(rule_, over<J>(p_));
    return want;
  }

  /// The largest error of the form over the draws, in units of the unit roundoff.
  Distance expected(std::string_view form) {
    Distance worst;
    for (const Format& f : kDraws) {
      const Working::Scope scope(f);
      const Distance d = distance(wanted<DoubleDouble>(), compute<AnyFormat>(rule_, form, C_, over<AnyFormat>(p_)));
      worst.o = std::max(worst.o, d.o / f.unit());
      worst.state = std::max(worst.state, d.state / f.unit());
    }
    return worst;
  }

  const Rule& rule_;
  const Family& family_;
  Index C_;
  std::uint64_t seed_;
  Problem<double> p_;
  std::tuple<Result<DoubleDouble>, Result<Mp50>> wanted_;
};

}  // namespace

bool applies(const Rule& rule, std::string_view form, const Problem<double>& p) {
  const Form<double>& f = *find_form<double>(form);
  if (!f.applies || p.shape.sequences() == 0) return true;
  return f.applies(
      stream<double>(rule.info, rule.over<double>(), p, 0, 0, rule.info.strength == Strength::per_value ? 0 : -1));
}

const std::vector<std::string>& scalar_names() {
  static const std::vector<std::string> names{"rational", "gf61", "dual", "mp50", "dd",
                                              "double",   "fp32", "tf32", "fp16", "bf16"};
  return names;
}

const std::vector<std::string>& form_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> n;
    for (const auto& f : kForms<double>) n.emplace_back(f.id);
    return n;
  }();
  return names;
}

void check_equivalence(const Selection& what, const std::function<void(const Row&)>& report) {
  const Shape shape{.B = 1, .T = 21, .H = 1, .HV = 2, .d_k = 6, .d_v = 4, .n_h = 3, .offsets = {}};
  for (const Rule* rule : rules()) {
    if (!chosen(what.rules, rule->info.id)) continue;
    for (const Family& family : families()) {
      if (!chosen(what.families, family.name)) continue;
      Case c(*rule, family, shape, 8, what.seed);
      for (const std::string& form : form_names()) {
        if (!chosen(what.forms, form) || !c.can(form)) continue;
        auto row = [&](std::string_view scalar, auto compute) {
          if (chosen(what.scalars, scalar)) report(compute());
        };
        row("rational", [&] { return c.exact<Rational>(form); });
        row("gf61", [&] { return c.exact<GF61>(form); });
        row("dual", [&] { return c.exact<Dual<GF61>>(form); });
        row("mp50", [&] { return c.ratio<Mp50, Mp50>(form, "mp50", Scalar<Mp50>::unit); });
        row("dd", [&] { return c.ratio<DoubleDouble, Mp50>(form, "dd", Scalar<DoubleDouble>::unit); });
        row("double", [&] { return c.ratio<double, DoubleDouble>(form, "double", Scalar<double>::unit); });
        for (const Format* f : {&kFp32, &kTf32, &kFp16, &kBf16}) row(f->name, [&] { return c.rounded(form, *f); });
      }
    }
  }
}

}  // namespace delta
