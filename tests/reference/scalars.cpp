// SPDX-License-Identifier: Apache-2.0
// The scalars: one set of ring laws for all, then what each of them promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "reference/core/random.hpp"
#include "reference/gradient/gradient.hpp"
#include "reference/gradient/one_solve_adjoint.hpp"
#include "reference/rules/gated_delta.hpp"
#include "reference/rules/q_delta.hpp"
#include "reference/scalars/convert.hpp"
#include "reference/scalars/dual.hpp"
#include "reference/scalars/gf61.hpp"
#include "reference/scalars/multiprecision.hpp"
#include "reference/scalars/rational.hpp"
#include "reference/scalars/rounded.hpp"
#include "tests/reference/archetype.hpp"
#include "tests/reference/streams.hpp"

namespace delta {
namespace {

// ---- Concepts: what each scalar is, and is not.

template <class T> constexpr bool only_ring = Ring<T> && !Field<T> && !Real<T>;
template <class T> constexpr bool only_field = Field<T> && !Real<T>;

static_assert(only_ring<Archetype>);
static_assert(only_ring<Dual<Archetype>>);
static_assert(only_field<GF61>);
static_assert(only_field<Dual<GF61>>);
static_assert(only_field<Dual<Rational>>);
static_assert(Real<Rational> && Real<Mp50> && Real<DoubleDouble> && Real<double> && Real<float>);
static_assert(Real<Bf16> && Real<Fp16> && Real<Tf32> && Real<Fp32> && Real<AnyFormat>);
static_assert(!Ring<std::string>);
static_assert(Scalar<Mp50>::unit == 0x1p-168 && std::numeric_limits<Mp50>::digits == 168);

// ---- Numbers to test with.

template <Ring T> T element(Random& r) {  // small integers: no scalar rounds what the laws make of them
  return T(static_cast<int>(r.below(7)) - 3);
}
template <> GF61 element(Random& r) { return GF61::from_residue(r.bits() >> 3); }
template <> Rational element(Random& r) {
  return Rational(static_cast<int>(r.below(2001)) - 1000) / Rational(1 + static_cast<int>(r.below(1000)));
}
template <> Archetype element(Random& r) {
  return Archetype(static_cast<int>(r.bits())) * Archetype(static_cast<int>(r.bits()));
}
template <> Dual<GF61> element(Random& r) { return {element<GF61>(r), element<GF61>(r)}; }
template <> Dual<Rational> element(Random& r) { return {element<Rational>(r), element<Rational>(r)}; }

// ---- The ring laws. For rounded scalars on small integers, where they hold as well.

template <class T> class RingLaws : public testing::Test {};
using Rings = testing::Types<Archetype, GF61, Rational, Dual<GF61>, Dual<Rational>, Dual<Archetype>, DoubleDouble, Mp50,
                             double, float, Bf16, Fp16, Tf32, Fp32, AnyFormat>;
TYPED_TEST_SUITE(RingLaws, Rings);

TYPED_TEST(RingLaws, Hold) {
  using T = TypeParam;
  Random r(1);
  const T zero(0), one(1);
  EXPECT_TRUE(T() == zero);
  EXPECT_FALSE(zero == one);
  for (int i = 0; i < 200; ++i) {
    const T a = element<T>(r), b = element<T>(r), c = element<T>(r);
    EXPECT_TRUE((a + b) + c == a + (b + c));
    EXPECT_TRUE(a + b == b + a);
    EXPECT_TRUE(a + zero == a && a * one == a && a * zero == zero);
    EXPECT_TRUE(a + (-a) == zero && a - b == a + (-b));
    EXPECT_TRUE((a * b) * c == a * (b * c));
    EXPECT_TRUE(a * b == b * a);
    EXPECT_TRUE(a * (b + c) == a * b + a * c);
    T d = a;
    EXPECT_TRUE((d += b) == a + b && (d -= b) == a && (d *= c) == a * c);
    EXPECT_TRUE(T(3) == one + one + one && T(-1) == -one);
  }
}

/// Every form and adjoint, and rules, over a scalar that has nothing beyond Ring: an accidental division, comparison or
/// conversion in them breaks the build of this file.
TYPED_TEST(RingLaws, AreEnoughForEveryForm) {
  using T = TypeParam;
  if constexpr (std::is_same_v<T, Archetype> || std::is_same_v<T, Dual<Archetype>>) {
    Random r(2);
    for (Decays decays : {Decays::scalar, Decays::channel}) {
      const Stream<T> s = random_stream<T>({.T = 7, .d_k = 3, .d_v = 2, .m = 2, .decays = decays, .reset_every = 5},
                                           [&] { return element<T>(r); });
      const Output<T> want = recurrent(s);
      for (const Form<T>& form : kForms<T>)
        if (!form.applies || form.applies(s)) expect_equal(want, form.run(s, 3));
      const Stream<T> a = recurrent_adjoint<T>(s, want.O, want.S, 2), b = one_solve_adjoint<T>(s, want.O, want.S, 3);
      EXPECT_TRUE(a.Q == b.Q && a.S0 == b.S0 && a.steps[3].x == b.steps[3].x);
    }
  }
  if constexpr (std::is_same_v<T, Archetype>) {
    Problem<T> p{.shape = {.T = 4, .d_k = 2, .d_v = 3}};
    p.q = p.k = Tensor<T>(1, 4, 1, 2), p.v = Tensor<T>(1, 4, 1, 3);
    p.beta = p.alpha = p.lambda = Tensor<T>(1, 4, 1, 1);
    Random r(3);
    p = p.template map<T>([&](const T&) { return element<T>(r); });
    auto check = [&](const RuleInfo& info, const RuleOps<T>& ops) {
      const Result<T> want = run_paper<T>(info, ops, p);
      expect_equal(want[0], run<T>(info, ops, p, [](const Stream<T>& s) { return scan<T>(s); })[0]);
      EXPECT_EQ(gradient<T>(info, ops, p, want).S0.size(), 1u);
    };
    check(gated_delta::info, ops<gated_delta, T>());
    check(q_delta::info, ops<q_delta, T>());
  }
}

// ---- Fields.

template <class T> class FieldLaws : public testing::Test {};
using Fields = testing::Types<GF61, Rational, Dual<GF61>, Dual<Rational>>;
TYPED_TEST_SUITE(FieldLaws, Fields);

TYPED_TEST(FieldLaws, Hold) {
  using T = TypeParam;
  Random r(4);
  for (int i = 0; i < 100; ++i) {
    const T a = element<T>(r), b = element<T>(r) + T(2000);  // not 0 in any of them
    EXPECT_TRUE((a / b) * b == a);
    EXPECT_TRUE((T(1) / b) * b == T(1));
    EXPECT_TRUE(a / b + a / b == (a + a) / b);
  }
}

TEST(GF61, ReducesItsExtremes) {
  const GF61 last = GF61::from_residue(GF61::p - 1);  // -1
  EXPECT_EQ(last, GF61(-1));
  EXPECT_EQ(last * last, GF61(1));
  EXPECT_EQ(last + GF61(1), GF61(0));
  EXPECT_EQ(GF61(0) - GF61(1), last);
  EXPECT_EQ(-GF61(0), GF61(0));
  EXPECT_EQ((-GF61(0)).residue(), 0u);
  EXPECT_EQ(GF61::from_residue(GF61::p), GF61(0));
  EXPECT_EQ(GF61::from_residue(~std::uint64_t{0}), GF61(7));  // 2^64 - 1 = 8 - 1
  EXPECT_EQ(GF61(std::numeric_limits<int>::min()) + GF61(std::numeric_limits<int>::max()), GF61(-1));
  EXPECT_EQ(GF61(2).power(61), GF61(1));
  EXPECT_EQ(GF61(3).power(GF61::p - 1), GF61(1));  // Fermat
}

TEST(GF61, FromDoubleIsARingHomomorphismOnDyadics) {
  auto f = [](double x) { return Scalar<GF61>::from(x); };
  Random r(5);
  for (int i = 0; i < 2000; ++i) {
    // Dyadics whose sums and products are doubles: 24 bits each, exponents apart by at most 20.
    const double a = std::ldexp(static_cast<double>(r.below(1 << 24)) * r.sign(), static_cast<int>(r.below(20)) - 30);
    const double b = std::ldexp(static_cast<double>(r.below(1 << 24)) * r.sign(), static_cast<int>(r.below(20)) - 30);
    EXPECT_EQ(f(a + b), f(a) + f(b));
    EXPECT_EQ(f(a * b), f(a) * f(b));
    EXPECT_EQ(f(-a), -f(a));
  }
  EXPECT_EQ(f(0), GF61(0));
  EXPECT_EQ(f(-0.0), GF61(0));
  EXPECT_EQ(f(1), GF61(1));
  EXPECT_EQ(f(-3), GF61(-3));
  EXPECT_EQ(f(0.5) + f(0.5), GF61(1));
  EXPECT_EQ(f(0x1p-1074) * f(0x1p1000) * f(0x1p74), GF61(1));
  EXPECT_EQ(f(0x1.fffffffffffffp1023) + f(0x1p971), f(2) * f(0x1p1023));
}

// ---- Dual numbers.

TEST(Dual, DifferentiatesByTheRulesOfCalculus) {
  using D = Dual<Rational>;
  Random r(6);
  for (int i = 0; i < 100; ++i) {
    const Rational x = element<Rational>(r), dx = element<Rational>(r), y = element<Rational>(r) + 2000,
                   dy = element<Rational>(r);
    const D X(x, dx), Y(y, dy);
    EXPECT_EQ(X + Y, D(x + y, Rational(dx + dy)));
    EXPECT_EQ(X - Y, D(x - y, Rational(dx - dy)));
    EXPECT_EQ(-X, D(Rational(-x), Rational(-dx)));
    EXPECT_EQ(X * Y, D(x * y, Rational(x * dy + dx * y)));
    EXPECT_EQ(X / Y, D(x / y, Rational((dx * y - x * dy) / (y * y))));
    EXPECT_EQ(X * X * X, D(x * x * x, Rational(3 * x * x * dx)));
  }
  EXPECT_EQ(D(5).tangent, 0);  // a constant
}

TEST(Dual, NestsForSecondDerivatives) {
  using D2 = Dual<Dual<GF61>>;
  const GF61 x(7);
  const D2 X({x, GF61(1)}, {GF61(1), GF61(0)}), cube = X * X * X;
  EXPECT_EQ(cube.value.tangent, GF61(3 * 49));   // 3 x^2
  EXPECT_EQ(cube.tangent.tangent, GF61(6 * 7));  // 6 x
}

// ---- Rounded scalars: conversion, against types that other people wrote.

template <class Bits16> double from_bits16(std::uint16_t bits) {
  return static_cast<double>(std::bit_cast<Bits16>(bits));
}
double eigen_bf16(double x) { return static_cast<float>(Eigen::bfloat16(static_cast<float>(x))); }

/// Equal as results of a rounding: the same number and sign of zero, or both NaN.
bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

/// All non-negative finite values of a 16-bit format in order, by their bits.
std::vector<double> values16(double (*decode)(std::uint16_t)) {
  std::vector<double> values;
  for (std::uint32_t b = 0; b < 0x8000; ++b)
    if (const double x = decode(static_cast<std::uint16_t>(b)); std::isfinite(x)) values.push_back(x);
  return values;
}

/// The nearest neighbour of x among the sorted values, ties to the one with even bits (its place in the list).
/// The whole definition of round-to-nearest-even, written over the list of values.
double nearest_of(const std::vector<double>& values, double x, double overflow) {
  if (std::abs(x) >= overflow) return std::copysign(HUGE_VAL, x);
  const auto above = std::ranges::lower_bound(values, std::abs(x));
  if (above == values.end()) return std::copysign(values.back(), x);
  if (*above == std::abs(x)) return x;
  const double low = *(above - 1), high = *above, middle = low + (high - low) / 2;  // exact in double
  const bool low_is_even = (above - 1 - values.begin()) % 2 == 0;
  const double y = std::abs(x) < middle || (std::abs(x) == middle && low_is_even) ? low : high;
  return std::copysign(y, x);
}

void expect_rounds_to_nearest_even(const Format& f, double (*decode)(std::uint16_t)) {
  int wrong = 0;
  auto expect = [&](double x, double want) {
    if (same(f.round(x), want) && same(f.round(-x), -want)) return;
    if (++wrong < 10) ADD_FAILURE() << f.name << ": " << x << " rounds to " << f.round(x) << ", not to " << want;
  };
  for (std::uint32_t b = 0; b < 0x10000; ++b) {  // all 65,536
    const double x = decode(static_cast<std::uint16_t>(b));
    expect(x, x);
  }
  const std::vector<double> values = values16(decode);
  const double overflow = values.back() + (values.back() - *(values.end() - 2)) / 2;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const double low = values[i], high = values[i + 1], middle = low + (high - low) / 2;
    for (double x : {std::nextafter(low, high), std::nextafter(middle, low), middle, std::nextafter(middle, high),
                     std::nextafter(high, low), low + (high - low) * 0.3})
      expect(x, nearest_of(values, x, overflow));
  }
  expect(std::nextafter(overflow, 0), values.back());
  expect(overflow, HUGE_VAL);
  expect(HUGE_VAL, HUGE_VAL);
  expect(0x1p-1074, 0);
  expect(std::numeric_limits<double>::max(), HUGE_VAL);
  EXPECT_EQ(wrong, 0) << f.name;
}

TEST(Rounded, Bf16RoundsToNearestEven) {
  expect_rounds_to_nearest_even(kBf16, [](std::uint16_t b) { return from_bits16<Eigen::bfloat16>(b); });
}
TEST(Rounded, Fp16RoundsToNearestEven) {
  expect_rounds_to_nearest_even(kFp16, [](std::uint16_t b) { return from_bits16<Eigen::half>(b); });
  expect_rounds_to_nearest_even(kFp16, [](std::uint16_t b) { return from_bits16<_Float16>(b); });
}

/// Doubles that are hard to round: any bits, any exponent, few or many bits set below the last one kept.
double any_double(Random& r) {
  const std::uint64_t bits = r.bits();
  const double x = std::bit_cast<double>(r.bits());
  switch (bits % 4) {
    case 0:
      return x;
    case 1:
      return static_cast<double>(static_cast<float>(std::ldexp(r.normal(), static_cast<int>(r.below(300)) - 150)));
    case 2: {  // a float and half its last place, more or less
      const float f = std::bit_cast<float>(static_cast<std::uint32_t>(r.bits()));
      const double middle = (double{f} + double{std::nextafter(f, HUGE_VALF)}) / 2;
      return bits & 8 ? middle : std::nextafter(middle, bits & 16 ? HUGE_VAL : 0);
    }
    default:
      return std::ldexp(r.normal(), static_cast<int>(r.below(40)) - 30);
  }
}

TEST(Rounded, AgreesWithTheCastsOfTheCompilerAndOfEigen) {
  Random r(7);
  int wrong = 0;
  auto expect = [&](const Format& f, double x, double want) {
    if (same(f.round(x), want) || ++wrong > 10) return;
    ADD_FAILURE() << f.name << ": " << std::hexfloat << x << " rounds to " << f.round(x) << ", not to " << want;
  };
  for (int i = 0; i < 400'000; ++i) {
    const double x = any_double(r);
    const auto f = static_cast<float>(x);
    expect(kFp32, x, f);
    expect(kFp16, x, static_cast<double>(static_cast<_Float16>(x)));
    expect(kFp16, f, static_cast<float>(Eigen::half(f)));
    expect(kBf16, f, eigen_bf16(f));
    expect(kFp64, x, x);
    if (std::isnormal(f)) {  // tf32 from its definition: fp32 with 13 bits less
      auto b = std::bit_cast<std::uint32_t>(f);
      b = (b + 0x0fff + ((b >> 13) & 1)) & ~0x1fffu;
      expect(kTf32, f, std::bit_cast<float>(b));
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(std::isnan(kFp16.round(NAN)) && std::isnan(Bf16(NAN).value()));
  EXPECT_EQ(kTf32.round(0x1p-136), 0x1p-136);  // the smallest subnormal of tf32
  EXPECT_EQ(kTf32.round(0x1p-137), 0);
}

// ---- Rounded scalars: arithmetic.

template <class R, class Machine> void expect_arithmetic_of(Random& r, int n, double (*draw)(Random&)) {
  int wrong = 0;
  auto expect = [&](const char* op, double a, double b, R got, Machine want) {
    if (same(got.value(), static_cast<double>(want)) || ++wrong > 10) return;
    ADD_FAILURE() << std::hexfloat << a << ' ' << op << ' ' << b << " = " << got.value() << ", not "
                  << static_cast<double>(want);
  };
  for (int i = 0; i < n; ++i) {
    const R a(draw(r)), b(draw(r));
    const auto x = static_cast<Machine>(a.value()), y = static_cast<Machine>(b.value());
    expect("+", a.value(), b.value(), a + b, static_cast<Machine>(x + y));
    expect("-", a.value(), b.value(), a - b, static_cast<Machine>(x - y));
    expect("*", a.value(), b.value(), a * b, static_cast<Machine>(x * y));
    expect("/", a.value(), b.value(), a / b, static_cast<Machine>(x / y));
    const auto root = static_cast<Machine>(std::sqrt(std::abs(static_cast<float>(x))));
    expect("sqrt", a.value(), 0, sqrt(abs(a)), root);
    EXPECT_EQ(a < b, x < y);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Rounded, Fp32ArithmeticIsThatOfFloat) {
  Random r(8);
  expect_arithmetic_of<Fp32, float>(r, 400'000, any_double);
  const Working::Scope fp32(kFp32);
  expect_arithmetic_of<AnyFormat, float>(r, 50'000, any_double);
}
TEST(Rounded, Fp16ArithmeticIsThatOfTheCompiler) {
  Random r(9);
  expect_arithmetic_of<Fp16, _Float16>(r, 400'000, [](Random& g) {
    return static_cast<double>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(g.bits())));
  });
}
TEST(Rounded, Bf16ArithmeticIsThatOfEigen) {
  Random r(10);
  expect_arithmetic_of<Bf16, Eigen::bfloat16>(
      r, 400'000, [](Random& g) { return from_bits16<Eigen::bfloat16>(static_cast<std::uint16_t>(g.bits())); });
}

TEST(Rounded, FormatOfTheThreadIsScoped) {
  EXPECT_EQ(AnyFormat(0x1.000002p0).value(), 0x1.000002p0);
  {
    const Working::Scope bf16(kBf16);
    EXPECT_EQ(AnyFormat(0x1.000002p0).value(), 1);
    EXPECT_EQ((AnyFormat(1) + AnyFormat(0x1p-8)).value(), 1);  // a tie, to even
  }
  EXPECT_EQ(AnyFormat(0x1.000002p0).value(), 0x1.000002p0);
}

// ---- Double-double, against the rationals: the relative error of every operation, proved number by number.

Rational exactly(DoubleDouble x) { return Rational(x.hi) + Rational(x.lo); }

/// |got - want| / |want| in units of 2^-106.
double error_units(DoubleDouble got, const Rational& want) {
  if (want == 0) return exactly(got) == 0 ? 0 : HUGE_VAL;
  return Scalar<Rational>::to_double(Rational(abs(Rational(exactly(got) - want)) / abs(want))) * 0x1p106;
}

/// Significands that make the roundings of the algorithms add up: all ones, one and a little, halves.
double hard_significand(Random& r) {
  const double last = static_cast<double>(r.below(8)) * 0x1p-52;
  switch (r.below(4)) {
    case 0:
      return r.sign() * (1 + r.uniform());
    case 1:
      return r.sign() * (1 + last);
    case 2:
      return r.sign() * (2 - 0x1p-52 - last);
    default:
      return r.sign() * (1 + static_cast<double>(r.below(16)) * 0x1p-26 + last);
  }
}
DoubleDouble hard_pair(Random& r, int exponent) {
  const double hi = std::ldexp(hard_significand(r), exponent);
  return DoubleDouble::fast_two_sum(hi, std::ldexp(hard_significand(r), exponent - 54 - static_cast<int>(r.below(12))));
}

TEST(DoubleDouble, StaysWithinItsErrorBounds) {
  Random r(11);
  double sum = 0, product = 0, quotient = 0, root = 0;
  for (int i = 0; i < 60'000; ++i) {
    const DoubleDouble a = hard_pair(r, static_cast<int>(r.below(41)) - 20);
    DoubleDouble b = hard_pair(r, static_cast<int>(r.below(41)) - 20);
    if (i % 3 == 0) b = -a + hard_pair(r, std::ilogb(a.hi) - static_cast<int>(r.below(107)));  // cancels, to any depth
    if (b.hi == 0) continue;
    const Rational A = exactly(a), B = exactly(b);
    sum = std::max({sum, error_units(a + b, A + B), error_units(a - b, A - B)});
    product = std::max(product, error_units(a * b, A * B));
    quotient = std::max(quotient, error_units(a / b, A / B));
    const DoubleDouble s = sqrt(abs(a));  // s^2 = |a| (1 + e)^2, so e is half the error of the square
    const Rational S = exactly(s);
    root = std::max(root, Scalar<Rational>::to_double(Rational(abs(Rational(S * S - abs(A))) / abs(A))) * 0x1p105);
    for (DoubleDouble x : {a + b, a - b, a * b, a / b, s}) ASSERT_EQ(x.hi + x.lo, x.hi) << "not normalised";
  }
  const double unit = Scalar<DoubleDouble>::unit * 0x1p106;
  EXPECT_LE(sum, 3.0000001);
  EXPECT_LE(product, unit);
  EXPECT_LE(quotient, unit);
  EXPECT_LE(root, unit);
  // The inputs are hard enough to tell these from algorithms that are half as good.
  EXPECT_GE(sum, 1.9);
  EXPECT_GE(product, 3.5);
  std::printf("          double-double, worst errors in 2^-106: sum %.2f product %.2f quotient %.2f root %.2f\n", sum,
              product, quotient, root);
}

TEST(DoubleDouble, OrdersByBothParts) {
  const DoubleDouble a(1, 0), b(1, 0x1p-80), c(1, -0x1p-80);
  EXPECT_TRUE(c < a && a < b && a != b && a == DoubleDouble(1));
  EXPECT_TRUE(abs(-b) == b && sqrt(DoubleDouble(0)) == DoubleDouble(0));
  EXPECT_TRUE(std::isnan(sqrt(DoubleDouble(-1)).hi));
}

// ---- Rationals and multiprecision.

TEST(Rational, IsInLowestTermsAndReadsDoublesExactly) {
  const Rational x = Rational(6) / Rational(-4);
  EXPECT_EQ(numerator(x), -3);
  EXPECT_EQ(denominator(x), 2);
  EXPECT_EQ(Scalar<Rational>::from(0.1) * Rational(36028797018963968), Rational(3602879701896397));
}

/// To double: the nearest, ties to even, whatever the type does by itself.
template <class T> void expect_nearest_double() {
  const T one(1), tiny = T(Scalar<T>::from(0x1p-100));
  auto to_double = [](const T& x) { return Scalar<T>::to_double(x); };
  const T middle = Scalar<T>::from(1) + Scalar<T>::from(0x1p-53);          // between 1 and its successor
  const T odd_middle = Scalar<T>::from(1) + Scalar<T>::from(3 * 0x1p-53);  // between the next two
  for (int sign : {1, -1}) {
    const T s(sign);
    EXPECT_EQ(to_double(s * middle), sign * 1.0);
    EXPECT_EQ(to_double(s * (middle + tiny)), sign * 0x1.0000000000001p0);
    EXPECT_EQ(to_double(s * (middle - tiny)), sign * 1.0);
    EXPECT_EQ(to_double(s * odd_middle), sign * 0x1.0000000000002p0);
    EXPECT_EQ(to_double(s * (odd_middle - tiny)), sign * 0x1.0000000000001p0);
    EXPECT_EQ(to_double(s * one), sign * 1.0);
  }
  EXPECT_EQ(to_double(T(0)), 0);
  Random r(12);
  for (int i = 0; i < 1000; ++i) {
    const double x = std::ldexp(r.normal(), static_cast<int>(r.below(200)) - 100);
    EXPECT_EQ(to_double(Scalar<T>::from(x)), x);
  }
}
TEST(Rational, GoesToTheNearestDouble) { expect_nearest_double<Rational>(); }
TEST(Mp50, GoesToTheNearestDouble) { expect_nearest_double<Mp50>(); }
TEST(DoubleDouble, GoesToTheNearestDouble) { expect_nearest_double<DoubleDouble>(); }

TEST(Convert, IsExactUpwardsAndRoundsOnceDownwards) {
  Random r(13);
  for (int i = 0; i < 2000; ++i) {
    const DoubleDouble x = hard_pair(r, static_cast<int>(r.below(41)) - 20);
    const Rational exact = exactly(x);
    EXPECT_EQ(convert<Rational>(x), exact);
    EXPECT_EQ(convert<GF61>(x), Scalar<GF61>::from(x.hi) + Scalar<GF61>::from(x.lo));
    EXPECT_EQ(convert<DoubleDouble>(exact), x);
    EXPECT_EQ(convert<DoubleDouble>(convert<Mp50>(x)), x);
    EXPECT_EQ(convert<double>(x), x.hi);
    EXPECT_EQ(convert<Mp50>(convert<Bf16>(0.3)), Mp50(convert<Bf16>(0.3).value()));
  }
  // Half way between two bf16 numbers but for a last part: rounding twice would take the tie to even.
  const DoubleDouble above(1 + 0x1p-8, 0x1p-70), below(1 + 3 * 0x1p-8, -0x1p-70);
  for (int sign : {1, -1}) {
    EXPECT_EQ(convert<Bf16>(DoubleDouble(sign) * above).value(), sign * (1 + 0x1p-7));
    EXPECT_EQ(convert<Bf16>(DoubleDouble(sign) * below).value(), sign * (1 + 0x1p-7));
    EXPECT_EQ(convert<Bf16>(Rational(Rational(sign) * exactly(above))).value(), sign * (1 + 0x1p-7));
  }
  EXPECT_EQ(convert<float>(DoubleDouble(1 + 0x1p-24, 0x1p-90)), 1 + 0x1p-23f);
}

}  // namespace
}  // namespace delta
