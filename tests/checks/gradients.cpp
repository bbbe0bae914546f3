// SPDX-License-Identifier: Apache-2.0
// The judge of gradients: the model of a rounded backward pass is the adjoint where nothing is rounded, right gradients
// pass in every precision, and each wrong one fails by its name.
#include <gmock/gmock.h>

#include "checks/verify/verify.hpp"
#include "tests/checks/made.hpp"
#include "tests/reference/streams.hpp"

namespace delta {
namespace {

using testing::HasSubstr;

double apart(const Vec<double>& a, const Vec<double>& b) { return a.size() == 0 ? 0 : (a - b).cwiseAbs().maxCoeff(); }

/// The largest difference between two gradients with respect to a stream, decays of zero left out.
double apart(const Stream<double>& of, const StreamAdjoint<double>& a, const StreamAdjoint<double>& b) {
  double d = std::max((a.Q - b.Q).cwiseAbs().maxCoeff(), (a.S0 - b.S0).cwiseAbs().maxCoeff());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    const MicroStep<double>&x = a.steps[i], &y = b.steps[i];
    d = std::max({d, apart(x.x, y.x), apart(x.y, y.y), apart(x.v, y.v), std::abs(x.beta - y.beta)});
    const Vec<double> decay = of.steps[i].d.d;
    EXPECT_EQ(x.d.d.size(), y.d.d.size());
    d = std::max(d, apart(x.d.d.cwiseProduct(decay), y.d.d.cwiseProduct(decay)));
  }
  return d;
}

TEST(Model, IsTheAdjointWhereNothingIsRounded) {
  for (Decays decays : {Decays::none, Decays::scalar, Decays::channel})
    for (bool pre_decay : {false, true})
      for (Index m : {1, 3})
        for (Index C : {0, 1, 4, 16, 64})
          for (int how : {0, 1, 2, 3}) {
            const bool one_solve = how % 2, decay_on_key = how / 2;
            SCOPED_TRACE(testing::Message()
                         << "decays " << static_cast<int>(decays) << " pre_decay " << pre_decay << " m " << m << " C "
                         << C << " one_solve " << one_solve << " decay_on_key " << decay_on_key);
            Random r(7);
            int drawn = 0;
            const Stream<double> s = random_stream<double>(
                {40, 5, 4, m, decays, pre_decay, 4}, [&] { return ++drawn % 29 == 0 ? 0.0 : r.uniform(0.3, 0.9); });
            Mat<double> dO(40, 4), dS(4, 5);
            for (Mat<double>* A : {&dO, &dS})
              for (double& x : A->reshaped()) x = r.normal();
            const Schedule exact{.C = C,
                                 .one_solve = one_solve,
                                 .decay_on_key = decay_on_key,
                                 .operand = kFp64,
                                 .inverse = kFp64,
                                 .state = kFp64};
            EXPECT_LT(apart(s, simulate_adjoint<double>(s, 0.5, dO, dS, exact), exact_gradient(s, 0.5, dO, dS)), 1e-9);
          }
}

Call call_of(std::string_view rule, std::string_view family = "gate_half", std::uint64_t seed = 1, Index T = 70) {
  return call(rule, family, seed, {.B = 1, .T = T, .H = 1, .HV = 2, .d_k = 16, .d_v = 12, .n_h = 2, .offsets = {}});
}

/// bf16 code is judged by what it makes, fp32 code by much less.
class RightGradients : public testing::TestWithParam<const Rule*> {};

TEST_P(RightGradients, Pass) {
  int cases = 0, marginal = 0;
  std::string untrusted;  // only what is ill-posed: keys of their own in a rule's erase let the state grow
  std::uint64_t seed = GetParam()->info.id.size();
  constexpr Index lengths[] = {1, 7, 65, 130};
  for (const char* family : {"gate_half", "gate_weak", "gate_strong", "alpha_zero", "one_fast_channel",
                             "correlated_keys", "beta_one", "no_state"}) {
    if (!find_family(family)->concerns(GetParam()->info)) continue;
    const Index T = lengths[++seed % 4];
    Call c = call_of(GetParam()->info.id, family, seed, T);
    const auto expect_pass = [&](const char* what, const Schedule& how) {
      const bool exact = c.inputs == Dtype::fp64;
      const FileVerdict v =
          verify(exact ? c.dump(exactly, exact_gradient) : c.dump(scheduled(how), scheduled_gradient(how)), {}, 2);
      const std::string said = std::string(what) + ", T " + std::to_string(T) + ", " + family + ": " + v.reason + "\n";
      EXPECT_NE(v.verdict, Verdict::failed) << said;
      ++cases, marginal += v.verdict == Verdict::marginal;
      if (v.verdict != Verdict::untrusted) return;
      EXPECT_THAT(v.reason, HasSubstr("ill-posed")) << said;
      untrusted += said;
    };
    if (seed / 2 % 2)
      expect_pass("chunks of 40", {.C = 40, .inverse = kFp16, .stretch = 1.43});
    else
      expect_pass("chunks of 64", {.C = 64, .one_solve = true, .stretch = 1.29});
    c.inputs = c.o = Dtype::fp32;
    expect_pass("fp32", {.C = seed % 3 ? 32 : 0, .operand = kFp32, .inverse = kFp32, .stretch = 1.31});
    if (T != 7) continue;
    c.inputs = c.o = c.state = Dtype::fp64;
    expect_pass("fp64", {});
  }
  EXPECT_LE(marginal, 1) << "of " << cases;
  EXPECT_LE(std::ranges::count(untrusted, '\n'), cases / 5) << untrusted << "of " << cases;
}

std::vector<const Rule*> differentiable_rules() {
  std::vector<const Rule*> some;
  for (const Rule* r : rules())
    if (r->has_gradient()) some.push_back(r);
  return some;
}
INSTANTIATE_TEST_SUITE_P(Rules, RightGradients, testing::ValuesIn(differentiable_rules()),
                         [](const auto& rule) { return std::string(rule.param->info.id); });

TEST(Gradients, OfEveryInputAreJudged) {
  const Call c = call_of("q_delta");
  const FileVerdict v = verify(c.dump(scheduled({}), scheduled_gradient({.stretch = 1.4})), {}, 2);
  EXPECT_EQ(name(v.verdict), name(Verdict::passed)) << v.reason;
  for (const char* tensor : {"o", "final_state", "dq", "dk", "dv", "dbeta", "dg", "dlambda", "d_initial_state"}) {
    const Judged* j = v.find(tensor);
    ASSERT_TRUE(j) << tensor;
    EXPECT_GT(j->ratio, 0.3) << tensor;
    EXPECT_LT(j->ratio, 1.5) << tensor;
    EXPECT_LT(j->reference, 1e-12) << tensor;
  }
  EXPECT_THAT(v.notes, testing::IsEmpty());
}

TEST(WrongGradients, FailByTheirName) {
  const Call c = call_of("q_delta", "gate_weak");
  const Dump right = c.dump(scheduled({}), scheduled_gradient({}));
  ASSERT_EQ(verify(right, {}, 2).verdict, Verdict::passed) << verify(right, {}, 2).reason;
  for (const char* tensor : {"dq", "dk", "dv", "dbeta", "dg", "dlambda", "d_initial_state"})
    for (const double factor : {-1., 0.25, 0.693147, 1.1, 0.}) {
      Dump d = right;
      edit(d, tensor, [&](auto& x) {
        for (double& y : x) y *= factor;
      });
      const FileVerdict v = verify(d, {}, 2);
      EXPECT_EQ(v.verdict, Verdict::failed) << tensor << " times " << factor;
      EXPECT_THAT(v.reason, HasSubstr(tensor)) << factor;
      ASSERT_TRUE(v.first_bad);
      EXPECT_EQ(v.first_bad->tensor, tensor);
      EXPECT_TRUE(v.diagnosis.empty()) << "the forward pass is right";
    }
}

TEST(WrongGradients, OfAMistakeInTheBackwardPass) {
  using Mistake = std::function<void(const Stream<double>&, StreamAdjoint<double>&)>;
  const std::tuple<const char*, const char*, Mistake> mistakes[] = {
      {"beta missing in dv", "dv",
       [](auto& s, auto& g) {
         for (std::size_t i = 0; i < g.steps.size(); ++i) g.steps[i].v /= s.steps[i].beta;
       }},
      {"the gradient of the last chunk's state lost", "dk",
       [](auto& s, auto& g) {
         const StreamAdjoint<double> none = exact_gradient(s, 0, Mat<double>::Zero(s.tokens(), s.d_v()), g.S0);
         for (std::size_t i = 0; i < g.steps.size(); ++i) g.steps[i].y -= none.steps[i].y;
       }},
      {"dk of one role only", "dk", [](auto&, auto& g) {
         for (auto& m : g.steps) m.x.setZero();
       }}};
  for (const auto& [what, tensor, mistake] : mistakes) {
    const Call c = call_of("gated_delta");
    const FileVerdict v =
        verify(c.dump(scheduled({}),
                      [&](const Stream<double>& s, double scale, const Mat<double>& dO, const Mat<double>& dS) {
                        StreamAdjoint<double> g = simulate_adjoint<float>(s, scale, dO, dS, {});
                        mistake(s, g);
                        return g;
                      }),
               {}, 2);
    EXPECT_EQ(v.verdict, Verdict::failed) << what;
    EXPECT_GT(v.find(tensor)->ratio, 2) << what;
    EXPECT_LT(v.find("dq")->ratio, 1.5) << what;
  }
}

/// dq and dk of a key head are the sums of those of its value heads; in packed files each sequence has its own.
TEST(Gradients, OfGroupedHeadsAddUp) {
  const Call c = call("gated_delta", "gate_weak", 2,
                      {.B = 1, .T = 90, .H = 2, .HV = 6, .d_k = 16, .d_v = 12, .offsets = {0, 5, 5, 69, 88}});
  const Dump d = c.dump(scheduled({}), scheduled_gradient({.stretch = 1.2}));
  EXPECT_EQ(d.find("dk")->shape, (std::vector<std::int64_t>{1, 90, 2, 16}));
  const FileVerdict v = verify(d, {}, 2);
  EXPECT_EQ(name(v.verdict), name(Verdict::passed)) << v.reason;
  EXPECT_EQ(v.find("dk")->by_token.ratio.cols(), 2);
  EXPECT_EQ(v.find("dv")->by_token.ratio.cols(), 6);
  Dump one = d;  // the value heads of one key head, without the last
  edit(one, "dk", [&](auto& x) {
    for (double& y : x) y *= 2. / 3;
  });
  EXPECT_EQ(verify(one, {}, 2).verdict, Verdict::failed);
}

TEST(Gradients, GoThroughTheNormOfQAndK) {
  Call c = call_of("gated_delta");
  Dump d = c.dump(exactly, exact_gradient);
  // q = 1.5 q0 of unit length: dq is what reaches q0, less its part along q0, over 1.5.
  for (const auto& [x, dx] : {std::pair{"q", "dq"}, {"k", "dk"}}) {
    const DumpTensor t = *d.find(x);
    std::vector<double> unit(static_cast<std::size_t>(t.size()));
    t.read(0, unit);
    for (std::size_t i = 0; i < unit.size(); i += 16) {
      const double n = Eigen::Map<const Vec<double>>(&unit[i], 16).norm();
      for (std::size_t e = i; e < i + 16; ++e) unit[e] /= n;
    }
    edit(d, dx, [&](auto& g) {
      for (std::size_t i = 0; i < g.size(); i += 16) {
        double along = 0;
        for (std::size_t e = i; e < i + 16; ++e) along += g[e] * unit[e];
        for (std::size_t e = i; e < i + 16; ++e) g[e] = (g[e] - along * unit[e]) / 1.5;
      }
    });
    edit(d, x, [](auto& v) {
      for (double& y : v) y *= 1.5;
    });
  }
  EXPECT_EQ(verify(d, {}, 2).verdict, Verdict::failed);
  d.metadata["qk_l2norm"] = "0";
  EXPECT_EQ(name(verify(d, {}, 2).verdict), name(Verdict::passed)) << verify(d, {}, 2).reason;
}

TEST(BadInput, OfGradientsIsNamed) {
  const Dump good = call_of("gated_delta").dump(scheduled({}), scheduled_gradient({}));
  const auto after = [&](const std::function<void(Dump&)>& change) {
    Dump d = good;
    change(d);
    try {
      return std::string(name(verify(d, {}, 1).verdict));
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
  };
  EXPECT_THAT(after([](Dump& d) { d.tensors.erase("do"); }), HasSubstr("no 'do'"));
  EXPECT_THAT(after([](Dump& d) { d.tensors["dk"].shape = {1, 70, 2, 8}; }), HasSubstr("expected [B,T,H,d_k]"));
  EXPECT_THAT(after([](Dump& d) { d.tensors["d_initial_state"].shape = {1, 2, 12, 16}; }), HasSubstr("[N,HV,d_k,d_v]"));
  EXPECT_THAT(after([](Dump& d) { edit(d, "do", [](auto& x) { x[3] = NAN; }); }), HasSubstr("'do'"));
  EXPECT_THAT(after([](Dump& d) { edit(d, "d_final_state", [](auto& x) { x[3] = NAN; }); }),
              HasSubstr("d_final_state"));
  EXPECT_THAT(after([](Dump& d) { edit(d, "dg", [](auto& x) { x[3] = NAN; }); }), HasSubstr("failed"));
  EXPECT_THAT(after([](Dump& d) { d.tensors.erase("d_final_state"); }), HasSubstr("failed")) << "0 stands for it";
  EXPECT_THAT(after([](Dump& d) { d.add("dlambda", Dtype::fp32, {1, 70, 2}, {}); }), HasSubstr("passed"));
}

}  // namespace
}  // namespace delta
