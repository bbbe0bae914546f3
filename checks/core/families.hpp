// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "checks/core/size.hpp"
#include "reference/core/problem.hpp"
#include "reference/core/random.hpp"

namespace delta {

/// Where a number stands: token t, channel i of the tensor, value head h; C is the chunk length of the case.
struct Site {
  Index t, i, h, C;
};

using DrawRows = void (*)(Mat<double>& rows, Random&);  ///< one vector a row: keys, queries or values of one head
using DrawNumber = double (*)(const Site&, Random&);    ///< a decay alpha, a strength beta, a lambda
using DrawState = void (*)(Mat<double>& S, Random&);    ///< an initial state [d_v x d_k]

/// How results on a family are judged in rounded scalars.
enum class Judge {
  ratio,        ///< by the error that correct code makes
  conditioned,  ///< the same, and the problem may be ill-posed: then the verdict is `untrusted`
  equality      ///< nothing is rounded at all: every scalar must match exactly
};

/// Which input a family is about. Rules that do not take it skip the family.
enum class Needs { nothing, decay, beta, lambda };

namespace draws {
void unit(Mat<double>& K, Random& r);
void normal(Mat<double>& K, Random& r);
double half(const Site&, Random& r);
double uniform(const Site&, Random& r);
}  // namespace draws

/// A family of inputs: a name, the reason it is hard, and how each tensor is drawn. A row of the table states what is
/// special about it; the rest is the easy baseline. Everything drawn is then rounded to 8 significant bits, so that
/// bf16, double, the rationals and a prime field all get exactly the same numbers.
struct Family {
  std::string_view name;
  std::string_view why;
  DrawRows keys = draws::unit;
  DrawRows queries = draws::unit;
  DrawRows values = draws::normal;
  DrawNumber alpha = draws::half;
  DrawNumber beta = draws::uniform;
  DrawNumber lambda = draws::uniform;
  DrawState state = draws::normal;  ///< nullptr: no initial state is given
  Judge judge = Judge::ratio;
  Needs needs = Needs::nothing;
  Size (*at)(Size) = nullptr;  ///< the size at which the difficulty exists, from the one that was asked for

  bool concerns(const RuleInfo& rule) const;
};

std::span<const Family> families();
const Family* find_family(std::string_view name);

/// The inputs of a rule in a family: deterministic in (rule, family, size, seed). Rows of a packed buffer that belong
/// to no sequence are NaN, whatever the family.
Problem<double> draw(const RuleInfo& rule, const Family& family, const Size& size, std::uint64_t seed);

}  // namespace delta
