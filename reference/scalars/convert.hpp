// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "double_double.hpp"
#include "multiprecision.hpp"
#include "scalar.hpp"

namespace delta {

/// hi + lo rounded to odd: of the two doubles around it, the one whose last bit is 1, unless it is a double itself.
/// Rounding that to nearest in at most 51 bits is then the correct rounding of hi + lo (Boldo, Melquiond 2008).
inline double rounded_to_odd(DoubleDouble x) {
  const bool odd = std::bit_cast<std::uint64_t>(x.hi) & 1;
  if (x.lo == 0 || odd) return x.hi;
  return std::nextafter(x.hi, std::copysign(std::numeric_limits<double>::infinity(), x.lo));
}

/// x in another scalar: exact where that scalar holds x, else rounded once, to nearest.
/// From any scalar to double, double-double and the narrow ones; from those and from `Mp50` to every scalar.
/// \pre x is finite, where it is wider than a double
template <Ring To, Ring From> To convert(const From& x) {
  constexpr bool pair = std::is_same_v<From, DoubleDouble>;
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (fits_in_double<From>) {
    return Scalar<To>::from(Scalar<From>::to_double(x));
  } else if constexpr (std::is_same_v<To, double>) {
    return Scalar<From>::to_double(x);
  } else if constexpr (pair && fits_in_double<To>) {
    return Scalar<To>::from(rounded_to_odd(x));
  } else if constexpr (pair) {
    return Scalar<To>::from(x.hi) + Scalar<To>::from(x.lo);
  } else if constexpr (std::is_same_v<To, DoubleDouble> || fits_in_double<To>) {
    const double hi = Scalar<From>::to_double(x);
    return convert<To>(DoubleDouble(hi, Scalar<From>::to_double(From(x - From(hi)))));
  } else {
    static_assert(std::is_same_v<From, Mp50>, "not a sum of a few doubles");
    To sum(0);
    for (Mp50 rest = x; rest != 0;) {
      const double part = Scalar<Mp50>::to_double(rest);
      if (part == 0) break;  // below the range of a double
      sum += Scalar<To>::from(part);
      rest -= part;
    }
    return sum;
  }
}

}  // namespace delta
