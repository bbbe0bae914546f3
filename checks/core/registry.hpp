// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>
#include <tuple>
#include <vector>

#include "reference/forms/run.hpp"
#include "reference/scalars/double_double.hpp"
#include "reference/scalars/dual.hpp"
#include "reference/scalars/gf61.hpp"
#include "reference/scalars/multiprecision.hpp"
#include "reference/scalars/rational.hpp"
#include "reference/scalars/rounded.hpp"

namespace delta {

/// A rule compiled for every scalar of the checks. One line `delta_add_rule(id)` in reference/CMakeLists.txt makes it.
struct Rule {
  const RuleInfo& info;
  std::tuple<RuleOps<Rational>, RuleOps<GF61>, RuleOps<Dual<GF61>>, RuleOps<double>, RuleOps<DoubleDouble>,
             RuleOps<Mp50>, RuleOps<AnyFormat>>
      ops;

  template <Ring T> const RuleOps<T>& over() const { return std::get<RuleOps<T>>(ops); }
  bool has_gradient() const { return over<double>().pullback != nullptr; }
};

template <class R> constexpr Rule compiled() {
  return {R::info,
          {ops<R, Rational>(), ops<R, GF61>(), ops<R, Dual<GF61>>(), ops<R, double>(), ops<R, DoubleDouble>(),
           ops<R, Mp50>(), ops<R, AnyFormat>()}};
}

/// Every registered rule, in the order of registration.
const std::vector<const Rule*>& rules();

/// The rule of that id or alias; nullptr if there is none.
const Rule* find_rule(std::string_view name);

}  // namespace delta
