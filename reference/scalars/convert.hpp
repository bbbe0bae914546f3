// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <type_traits>

#include "double_double.hpp"
#include "multiprecision.hpp"
#include "scalar.hpp"

namespace delta {

/// x in another scalar: exact where that scalar is at least as wide, rounded once where it is not.
/// \pre x is finite, where it is wider than a double
template <Ring To, Ring From> To convert(const From& x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (std::is_same_v<From, Mp50>) {  // a sum of a few doubles
    To sum(0);
    for (Mp50 rest = x; rest != 0;) {
      const double part = Scalar<Mp50>::to_double(rest);
      if (part == 0) break;  // below the range of a double
      sum += Scalar<To>::from(part);
      rest -= part;
    }
    return sum;
  } else if constexpr (std::is_same_v<From, DoubleDouble>)
    return Scalar<To>::from(x.hi) + Scalar<To>::from(x.lo);
  else if constexpr (std::is_same_v<From, double>)
    return Scalar<To>::from(x);
  else
    return Scalar<To>::from(Scalar<From>::to_double(x));
}

}  // namespace delta
