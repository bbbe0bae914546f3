// SPDX-License-Identifier: Apache-2.0
// Every rule: its micro-steps and the formula as its source prints it are the same function, exactly.
#include <gtest/gtest.h>

#include "checks/core/families.hpp"
#include "checks/core/measure.hpp"

namespace delta {
namespace {

class EveryRule : public testing::TestWithParam<const Rule*> {
 protected:
  Shape shape{.B = 1, .T = 5, .H = 1, .HV = 2, .d_k = 4, .d_v = 3, .n_h = 3, .offsets = {}};
  Problem<double> like = draw(GetParam()->info, families()[0], shape, 1);

  template <Ring T> void steps_equal_paper_step() const {
    const Problem<T> p = generic<T>(like, 7);
    const Result<T> want = compute_paper<T>(*GetParam(), p), got = compute<T>(*GetParam(), "recurrent", 1, p);
    ASSERT_EQ(want.size(), got.size());
    for (std::size_t lane = 0; lane < want.size(); ++lane) {
      EXPECT_TRUE(want[lane].O == got[lane].O) << "output of lane " << lane;
      EXPECT_TRUE(want[lane].S == got[lane].S) << "state of lane " << lane;
    }
  }
};

TEST_P(EveryRule, StepsEqualPaperStepOverTheRationals) { steps_equal_paper_step<Rational>(); }
TEST_P(EveryRule, StepsEqualPaperStepOverAPrimeField) { steps_equal_paper_step<GF61>(); }
TEST_P(EveryRule, StepsEqualPaperStepInTheirDerivatives) { steps_equal_paper_step<Dual<GF61>>(); }

INSTANTIATE_TEST_SUITE_P(Rules, EveryRule, testing::ValuesIn(rules()),
                         [](const auto& rule) { return std::string(rule.param->info.id); });

}  // namespace
}  // namespace delta
