// SPDX-License-Identifier: Apache-2.0
// The rationals where GMP is missing: Boost's own are the same numbers through the same interface.
#undef DELTAREF_GMP
#include <gtest/gtest.h>

#include "reference/forms/one_solve.hpp"
#include "reference/forms/recurrent.hpp"
#include "reference/scalars/rational.hpp"
#include "tests/reference/streams.hpp"

namespace delta {
namespace {

static_assert(std::is_same_v<Rational::backend_type, boost::multiprecision::cpp_rational_backend>);
static_assert(Real<Rational>);

TEST(RationalWithoutGmp, IsExact) {
  EXPECT_EQ(Rational(1) / Rational(3) + Rational(1) / Rational(6), Rational(1) / Rational(2));
  EXPECT_EQ(Scalar<Rational>::from(0.1) * Rational(36028797018963968), Rational(3602879701896397));
}

TEST(RationalWithoutGmp, GoesToTheNearestDouble) {
  const Rational half_place = Scalar<Rational>::from(0x1p-53), tiny = Scalar<Rational>::from(0x1p-200);
  EXPECT_EQ(Scalar<Rational>::to_double(1 + half_place), 1);
  EXPECT_EQ(Scalar<Rational>::to_double(1 + half_place + tiny), 0x1.0000000000001p0);
  EXPECT_EQ(Scalar<Rational>::to_double(-1 - half_place - tiny), -0x1.0000000000001p0);
}

TEST(RationalWithoutGmp, RunsTheForms) {
  Random r(1);
  const Stream<Rational> s =
      random_stream<Rational>({.T = 5, .d_k = 2, .d_v = 3, .decays = Decays::channel, .reset_every = 3},
                              [&] { return Rational(static_cast<int>(r.below(9)) - 4) / Rational(3); });
  expect_equal(recurrent(s), one_solve(s, 2));
}

}  // namespace
}  // namespace delta
