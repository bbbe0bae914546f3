// SPDX-License-Identifier: Apache-2.0
// The known mistakes through the checks: one that the default suite lets live is a hole in it.
#include <gmock/gmock.h>

#include <set>

#include "checks/core/equivalence.hpp"
#include "checks/core/measure.hpp"
#include "checks/mutants/kills.hpp"

namespace delta {
namespace {

TEST(Mutants, AreKilledByTheDefaultSuite) {
  const std::vector<Kills> all = kills();
  EXPECT_EQ(all.size(), mutants<double>().size());
  for (const Kills& k : all) {
    EXPECT_GT(k.failed, 0) << k.mutant << " of " << k.decided << " comparisons";
    EXPECT_TRUE(!k.laws.empty() || std::ranges::any_of(k.gates, [](const std::string& g) { return !g.empty(); }))
        << k.mutant;
  }
  // Mistakes of the decay do not show where there is none; equality tries random decays besides.
  ASSERT_EQ(kGateStrengths[0].name, "no gate");
  for (const char* m : {"decay-missing", "decay-after-write", "gate-base-2"}) {
    const Kills& k = *std::ranges::find(all, m, &Kills::mutant);
    EXPECT_THAT(k.gates[0], testing::AnyOf("", "exact")) << m;
    EXPECT_EQ(k.gates[2], "bf16") << m;
  }
}

TEST(Mutants, HaveIdsOfTheirOwn) {
  std::set<std::string> names;
  for (const Mutant<double>& m : mutants<double>()) EXPECT_TRUE(names.insert(m.name()).second) << m.name();
  for (const Form<double>& f : kForms<double>) EXPECT_FALSE(names.contains(std::string(f.id)));
}

/// What kills a mutant lets the right forms live.
TEST(Mutants, RightFormsTakeTheSameRoadAndLive) {
  Selection what;
  what.rules = {"q_delta"}, what.size = Size::parse("B1_T24_H2_HV4_K4_V4_packed0.5.5.16.21_C4");
  for (const GateStrength& g : kGateStrengths) what.families.emplace_back(g.family);
  int rows = 0;
  check_equivalence(what, [&](const Row& r) {
    ++rows;
    EXPECT_NE(r.verdict, Verdict::failed) << r.form << ' ' << r.scalar << ' ' << r.family << ": " << r.reason;
  });
  EXPECT_GT(rows, 100);
}

}  // namespace
}  // namespace delta
