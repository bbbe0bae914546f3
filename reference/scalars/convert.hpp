// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <type_traits>

#include "double_double.hpp"
#include "scalar.hpp"

namespace delta {

/// x in another scalar: exact where that scalar is at least as wide, rounded once where it is not.
template <Ring To, Ring From> To convert(const From& x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (std::is_same_v<From, DoubleDouble>)
    return Scalar<To>::from(x.hi) + Scalar<To>::from(x.lo);
  else if constexpr (std::is_same_v<From, double>)
    return Scalar<To>::from(x);
  else
    return Scalar<To>::from(Scalar<From>::to_double(x));
}

}  // namespace delta
