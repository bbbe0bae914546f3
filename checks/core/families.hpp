// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "checks/core/random.hpp"
#include "reference/core/problem.hpp"

namespace delta {

/// Fills the keys (or queries) of one head, row by row, [T x d_k].
using KeysLike = void (*)(Mat<double>& K, Random& r);
/// One number for token t: a decay alpha, a strength beta, a lambda.
using NumberLike = double (*)(Index t, Random& r);

/// A family of inputs: a name, the reason it is hard, and how each tensor is drawn.
/// Everything drawn is then rounded to 8 significant bits, so that bf16, double, the rationals and a prime field all
/// get exactly the same numbers.
struct Family {
  std::string_view name;
  std::string_view why;
  KeysLike keys;
  NumberLike alpha;
  NumberLike beta;
  NumberLike lambda;
  bool initial_state = true;
};

std::span<const Family> families();
const Family* find_family(std::string_view name);

/// The inputs of a rule in a family: deterministic in (rule, family, shape, seed).
Problem<double> draw(const RuleInfo& rule, const Family& family, const Shape& shape, std::uint64_t seed);

}  // namespace delta
