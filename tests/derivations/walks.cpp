// SPDX-License-Identifier: Apache-2.0
// Every derivation holds over its scalars; a claim that is wrong is caught; the degrees that state the chance of error
// are right; the transcript says what was claimed.
#include <gmock/gmock.h>

#include <limits>
#include <sstream>

#include "derivations/core/runs.hpp"

namespace delta {

void PrintTo(const Entry& e, std::ostream* out) { *out << e.name; }

namespace {

using testing::HasSubstr;

class EveryDerivation : public testing::TestWithParam<Entry> {
 protected:
  static void expect_all_hold(const Record& record) {
    EXPECT_FALSE(record.claims.empty());
    for (const Claim& c : record.claims)
      EXPECT_TRUE(c.holds) << c.id << ", line " << c.line << ": " << c.statement << "\n  " << c.detail;
  }
};

TEST_P(EveryDerivation, HoldsOverTheRationals) {
  for (std::uint64_t seed : {1, 2, 3})
    expect_all_hold(runs_of(GetParam(), {.seed = seed, .scalar = "rational"})[0].record);
}

/// Those that need no order and are not about printed numbers.
class EveryIdentity : public EveryDerivation {};

std::vector<Entry> identities() {
  std::vector<Entry> all(derivations().begin(), derivations().end());
  std::erase_if(all, [](const Entry& e) { return e.over_field == nullptr; });
  return all;
}

TEST_P(EveryIdentity, HoldsOverAPrimeFieldAtRealSizes) {
  const Record record = runs_of(GetParam(), {.scalar = "gf61"}).at(0).record;
  expect_all_hold(record);
  for (const Claim& c : record.claims)
    EXPECT_LT(c.degree / static_cast<double>(GF61::p), 1e-12) << "no proof: " << c.id << " " << c.statement;
}

TEST_P(EveryDerivation, HasNoIdentityOverOneScalarOnly) {
  const std::vector<delta::Run> runs = runs_of(GetParam(), {});
  for (const Claim& c : runs[0].record.claims) {
    if (!why_one_scalar(c.kind).empty()) continue;
    const auto same = [&](const Claim& other) { return other.line == c.line && other.statement == c.statement; };
    EXPECT_TRUE(runs.size() == 2 && std::ranges::any_of(runs[1].record.claims, same)) << c.id << ' ' << c.statement;
  }
}

TEST_P(EveryDerivation, IsAnArticle) {
  EXPECT_THAT(std::string(GetParam().title()), testing::Not(testing::IsEmpty()));
  EXPECT_LE(std::count(GetParam().source.begin(), GetParam().source.end(), '\n'), 250);
  std::ostringstream out;
  Transcript t(GetParam(), out, {});
  const delta::Setup setup;
  Derivation<Rational> d(setup, t);
  GetParam().over_rationals(d);
  t.finish();
  EXPECT_TRUE(t.all_hold());
  EXPECT_THAT(out.str(), HasSubstr(std::string(GetParam().title())));
  EXPECT_THAT(out.str(), HasSubstr("holds  " + t.claims.back().id));
  std::istringstream lines(out.str());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110u) << line;
}

std::string name_of(const testing::TestParamInfo<Entry>& e) { return std::string(e.param.name); }
INSTANTIATE_TEST_SUITE_P(All, EveryDerivation, testing::ValuesIn(derivations().begin(), derivations().end()), name_of);
INSTANTIATE_TEST_SUITE_P(All, EveryIdentity, testing::ValuesIn(identities()), name_of);

// ---- a wrong claim is caught --------------------------------------------------------------------------------------

template <class T> struct Wrong : testing::Test {
  delta::Setup setup;
  Record record;
  Derivation<T> d{setup, record};
};
using Scalars = testing::Types<Rational, Generic>;
TYPED_TEST_SUITE(Wrong, Scalars);

TYPED_TEST(Wrong, EqualityThatDoesNotHold) {
  const Mat<TypeParam> A = this->d.matrix(3, 3);
  Mat<TypeParam> B = A;
  EXPECT_TRUE(this->d.equal("F00", "A = A", A, B));
  B(2, 1) += TypeParam(1);
  EXPECT_FALSE(this->d.equal("F00", "A = B", A, B));
  EXPECT_FALSE(this->record.all_hold());
  EXPECT_THAT(this->record.claims.back().detail, HasSubstr("entry (2, 1)"));
}
TYPED_TEST(Wrong, EqualityOfOtherShapesOrOfNothing) {
  EXPECT_FALSE(this->d.equal("F00", "shapes", this->d.matrix(2, 3), this->d.matrix(3, 2)));
  EXPECT_FALSE(this->d.equal("F00", "nothing", Mat<TypeParam>(0, 0), Mat<TypeParam>(0, 0)));
}
TYPED_TEST(Wrong, ErratumThatIsRight) {
  const Mat<TypeParam> A = this->d.matrix(2, 2);
  EXPECT_FALSE(this->d.differs("E00", "A differs from A", A, A));
}
TYPED_TEST(Wrong, OnceAmongMany) {  // one claim in a loop, wrong in one turn of it
  for (int i = 0; i < 5; ++i) this->d.equal("F00", "i = i", TypeParam(i), TypeParam(i == 3 ? 4 : i));
  ASSERT_EQ(this->record.claims.size(), 1u);
  EXPECT_EQ(this->record.claims[0].times, 5);
  EXPECT_FALSE(this->record.all_hold());
}
TEST(WrongBound, IsCaught) {
  delta::Setup setup;
  Record record;
  Derivation<Rational> d(setup, record);
  EXPECT_FALSE(d.at_most("F00", "2 <= 1", Rational(2), Rational(1)));
  EXPECT_FALSE(d.less("F00", "1 < 1", Rational(1), Rational(1)));
  EXPECT_FALSE(d.near("F00", "NaN", std::numeric_limits<double>::quiet_NaN(), 0, 1));
  EXPECT_FALSE(d.recomputes("F00", "1/3 printed as 0.33", Rational(1) / 3, Rational(33) / 100));
  EXPECT_FALSE(d.counts("F00", "one more", 11, 10));
  EXPECT_EQ(record.claims.size(), 5u);
}
TEST(TellingSeed, RejectsAnErratumThatIsAlwaysRight) {  // no seed can tell a thing from itself
  const Entry same{"same", "", [](Derivation<Rational>& d) {
                     const Rational x = d.integer();
                     d.differs("E00", "x differs from x", x, x);
                   }};
  EXPECT_FALSE(runs_of(same, {})[0].record.all_hold());
  const Entry sometimes{"sometimes", "", [](Derivation<Rational>& d) {
                          const Rational x = d.integer(), y = d.integer();
                          d.differs("E00", "x differs from y", x, y);
                        }};
  for (std::uint64_t seed = 1; seed < 40; ++seed) EXPECT_TRUE(runs_of(sometimes, {.seed = seed})[0].record.all_hold());
}
TEST(NoClaims, IsNoSuccess) { EXPECT_FALSE(Record().all_hold()); }

// ---- the chance of error ------------------------------------------------------------------------------------------

TEST(Generic, KnowsItsDegree) {
  const Generic x = Generic::variable(GF61(5)), y = Generic::variable(GF61(7));
  EXPECT_EQ(Generic::degree(x * y + x, Generic(1)), 2);
  EXPECT_EQ(Generic::degree(x * x * y, y), 3);
  EXPECT_EQ(Generic::degree(x / y, Generic(1)), 1);          // x - y
  EXPECT_EQ(Generic::degree(x / y + y / x, Generic(0)), 2);  // x^2 + y^2
  EXPECT_EQ(Generic::degree(x / y, y / x), 2);
  EXPECT_TRUE(x / y * y == x);
}
TEST(Generic, AFalseIdentityIsFoundFalse) {
  delta::Setup setup;
  Record record;
  Derivation<Generic> d(setup, record);
  const Generic a = d.integer(), b = d.integer();
  EXPECT_TRUE(d.equal("F00", "(a + b)^2 = a^2 + 2 a b + b^2", (a + b) * (a + b), a * a + Generic(2) * a * b + b * b));
  EXPECT_FALSE(d.equal("F00", "(a + b)^2 = a^2 + b^2", (a + b) * (a + b), a * a + b * b));
  EXPECT_EQ(record.claims[0].degree, 2);
}

}  // namespace
}  // namespace delta
