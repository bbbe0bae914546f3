// SPDX-License-Identifier: Apache-2.0
// The judge of other people's kernels: right ones pass in every precision, one mistake fails, and what cannot be
// judged says so.
#include "checks/report/verify_report.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/checks/kernels.hpp"
#include "tests/checks/made.hpp"

namespace delta {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string complaint(const Dump& d, const DumpOptions& options = {}) {
  try {
    return "judged: " + std::string(name(verify(d, options, 1).verdict));
  } catch (const UsageError& e) {
    return e.what();
  }
}

// ---------------------------------------------------------------- the dumps of real and of mistaken kernels

TEST(Dumps, EachGetsItsVerdict) {
  const std::pair<const char*, Verdict> files[] = {{"real_gdn_chunk_0", Verdict::passed},
                                                   {"real_gdn_chunk_1", Verdict::passed},
                                                   {"real_gdn_recurrent", Verdict::passed},
                                                   {"real_delta_chunk_0", Verdict::passed},
                                                   {"real_kda_chunk", Verdict::passed},
                                                   {"real_mamba2_chunk", Verdict::passed},
                                                   {"real_qdelta_chunk_0", Verdict::failed},
                                                   {"real_qdelta_chunk_2", Verdict::failed},
                                                   {"case_00", Verdict::failed},
                                                   {"case_02", Verdict::failed},
                                                   {"case_04", Verdict::failed},
                                                   {"case_07", Verdict::failed},
                                                   {"case_09", Verdict::failed},
                                                   {"case_11", Verdict::failed},
                                                   {"case_12", Verdict::marginal},
                                                   {"case_14", Verdict::failed},
                                                   {"case_15", Verdict::failed},
                                                   {"case_18", Verdict::failed},
                                                   {"case_19", Verdict::passed},
                                                   {"case_21", Verdict::passed}};
  for (const auto& [file, verdict] : files) {
    const FileVerdict v = of_file(file);
    EXPECT_FALSE(v.unreadable) << v.reason;
    EXPECT_EQ(name(v.verdict), name(verdict)) << file << ": " << v.reason;
    EXPECT_EQ(v.first_bad.has_value(), verdict != Verdict::passed) << file;
  }
}

TEST(Dumps, TheModelPredictsRealChunkKernels) {
  // The errors that these kernels really made, over the largest of the draws of the model.
  for (const char* file :
       {"real_gdn_chunk_0", "real_gdn_chunk_1", "real_delta_chunk_0", "real_kda_chunk", "real_mamba2_chunk"}) {
    const FileVerdict v = of_file(file);
    ASSERT_EQ(v.outputs.size(), 2u) << file;
    for (const Judged& j : v.outputs) {
      EXPECT_GT(j.ratio, 0.7) << file;
      EXPECT_LT(j.ratio, 1.2) << file;
    }
  }
}

TEST(Grades, OfTheDumpsAreWhatTheirProducersDo) {
  const std::tuple<const char*, const char*, const char*> files[] = {
      {"real_gdn_chunk_0", "chunk-bf16-inverse", "chunks of 64, two solves"},
      {"real_gdn_chunk_1", "chunk-bf16-inverse", "chunks of 64, two solves"},
      {"real_delta_chunk_0", "chunk-bf16-inverse", "100 % of its square error"},  // bit by bit
      {"real_kda_chunk", "chunk-bf16-inverse", "chunks of 64, two solves"},
      {"real_mamba2_chunk", "chunk-bf16-inverse", "chunks of 64"},
      {"real_gdn_recurrent", "recurrent-fp32", "the recurrence"},
      {"case_19", "recurrent-fp32", "the recurrence"},
      {"case_21", "recurrent-fp32", "the recurrence"},
      {"case_12", "state-bf16", "the recurrence, state in bf16"},
      {"case_04", "worse", ""},  // its state is right
      {"case_09", "worse", ""},
      {"real_qdelta_chunk_0", "worse", ""}};
  for (const auto& [file, grade, reason] : files) {
    const FileVerdict v = of_file(file);
    EXPECT_EQ(v.grade, grade) << file;
    EXPECT_THAT(v.grade_reason, HasSubstr(reason)) << file;
    EXPECT_EQ(v.dominant.empty(), v.grade == "worse") << file;
  }
  EXPECT_EQ(of_file("case_12").dominant[0].intermediate, "kept state S");
  EXPECT_EQ(of_file("case_19").dominant[0].intermediate, "the bf16 of o");
}

TEST(Grades, TellBuildsApart) {
  const Call c = call("gated_delta", "gate_weak", 1, {.T = 150, .d_k = 32, .d_v = 32, .offsets = {}});
  const std::tuple<const char*, const char*, Kernel> built[] = {
      {"chunk-fp32-inverse", "chunks of 64, one solve", kernels::Chunked{.solve = kernels::Solve::substitution}},
      {"chunk-bf16-inverse", "chunks of 32, two solves",
       kernels::Chunked{.inverse = kBf16, .C = 32, .solve = kernels::Solve::two_inverses}},
      {"recurrent-fp32", "the recurrence", kernels::Recurrent{.fused = true}},
      {"state-bf16", "state in bf16", scheduled({.C = 16, .state = kBf16})},
      {"chunk-tf32-inverse", "tf32 operands", scheduled({.operand = kTf32, .inverse = kTf32, .stretch = 1.2})},
      {"chunk-bf16-inverse", "about the size", scheduled({.C = 48, .stretch = 1.4})}};
  for (const auto& [grade, reason, kernel] : built) {
    const FileVerdict v = judged(c, kernel);
    EXPECT_EQ(v.grade, grade) << reason << ": " << v.grade_reason;
    EXPECT_THAT(v.grade_reason, HasSubstr(reason));
  }
}

TEST(Grades, KnowABetaThatWasRounded) {
  Call c = call("gated_delta", "gate_weak", 1, {.T = 60, .d_k = 32, .d_v = 32, .offsets = {}});
  for (double& b : c.p.beta.data) b = kFp32.round(0.3 + 0.61 * b);
  Dump d = c.dump(scheduled({.C = 0, .beta = kBf16}));
  edit(d, "beta", [](auto&) {});
  const DumpTensor beta = *d.find("beta");
  d.add("beta", Dtype::fp32, beta.shape, c.p.beta.data);
  const FileVerdict v = judged(d);
  EXPECT_EQ(v.grade, "recurrent-fp32");
  EXPECT_THAT(v.grade_reason, HasSubstr("beta in bf16"));
  ASSERT_EQ(v.dominant.size(), 2u);
  EXPECT_EQ(v.dominant[1].intermediate, "beta");
  EXPECT_GT(v.dominant[1].share, 0.9);
}

TEST(Dumps, AStateThatWasKeptInBf16IsNamed) {
  const FileVerdict v = of_file("case_12");
  EXPECT_THAT(v.reason, HasSubstr("holds only bf16 numbers"));
}

// ---------------------------------------------------------------- correct kernels

class CorrectKernels : public testing::TestWithParam<const Rule*> {};

TEST_P(CorrectKernels, NeverFail) {
  const std::string rule(GetParam()->info.id);
  int cases = 0, marginal = 0;
  std::uint64_t seed = 0;
  for (const Family& family : families()) {
    if (!family.concerns(GetParam()->info)) continue;
    for (const Index T : {1, 7, 65, 130}) {
      const Index d = seed++ % 2 ? 16 : 8;
      const Size size({.T = T, .d_k = d, .d_v = 8, .n_h = 2, .offsets = {}});
      Call c = call(rule, family.name, seed, family.at ? family.at(size).shape : size.shape);
      auto expect_no_failure = [&](const char* what, const Kernel& kernel) {
        const FileVerdict v = judged(c, kernel);
        EXPECT_NE(v.verdict, Verdict::failed) << what << ", T " << T << ", " << family.name << ": " << v.reason;
        ++cases, marginal += v.verdict == Verdict::marginal;
      };
      const bool half = seed % 3 == 0;
      const Format& f = half ? kFp16 : kBf16;
      c.inputs = c.o = half ? Dtype::fp16 : Dtype::bf16;
      expect_no_failure("recurrent, fp32 state", scheduled({.C = 0}));
      switch (seed % 4) {
        case 0:
          expect_no_failure("chunk 40", scheduled({.C = 40, .operand = f, .inverse = kFp16, .stretch = 1.43}));
          break;
        case 1:
          expect_no_failure("chunk 64",
                            scheduled({.one_solve = true, .operand = f, .inverse = kTf32, .stretch = 1.77}));
          break;
        case 2:
          expect_no_failure("chunk 16", scheduled({.C = 16, .operand = f, .inverse = f, .stretch = 1.53}));
          break;
        case 3:
          expect_no_failure("another build", kernels::Chunked{.f = f, .inverse = kFp16});
          break;
      }
      c.inputs = c.o = Dtype::fp32;
      expect_no_failure("fp32", scheduled({.C = seed % 2 ? 0 : 32, .operand = kFp32, .inverse = kFp32}));
    }
  }
  EXPECT_LE(marginal, cases / 100) << "of " << cases;
}

INSTANTIATE_TEST_SUITE_P(Rules, CorrectKernels, testing::ValuesIn(rules()),
                         [](const auto& rule) { return std::string(rule.param->info.id); });

TEST(ManyHeads, ACorrectDecodeStepPasses) {
  // Thousands of lanes of one token: the worst of so many is far from what one lane shows.
  const Call c = call("kda", "gate_half", 1, {.B = 8, .T = 1, .H = 64, .HV = 64, .d_k = 16, .d_v = 16, .offsets = {}});
  EXPECT_EQ(name(judged(c, scheduled({.stretch = 1.29})).verdict), name(Verdict::passed));
}

TEST(Precision, SumsInAnyOrderAreCorrectFp32) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    for (const Index T : {1, 2}) {
      Call c = call("gated_delta", "gate_half", seed, {.T = T, .d_k = 128, .d_v = 32, .offsets = {}});
      c.inputs = c.o = Dtype::fp32;
      const FileVerdict v = judged(c, kernels::Recurrent{.backwards = seed % 2 == 1});
      EXPECT_EQ(name(v.verdict), name(Verdict::passed)) << "T " << T << ", seed " << seed << ": " << v.reason;
    }
}

TEST(Precision, DoubleKernelsAreJudgedInDoubleDouble) {
  Call c = call();
  c.inputs = c.o = c.state = Dtype::fp64;
  EXPECT_EQ(judged(c, exactly).verdict, Verdict::passed);
  EXPECT_EQ(judged(c, scheduled({.C = 0})).verdict, Verdict::failed);  // fp32 arithmetic in a fp64 kernel
}

TEST(Precision, ANormInFp32IsNoMistake) {  // a decode step whose q . k cancels
  const FileVerdict v = of_file("decode_l2norm");
  EXPECT_NE(name(v.verdict), name(Verdict::failed)) << v.reason;
  EXPECT_TRUE(v.diagnosis.empty());
}

TEST(Precision, AMistakeInAFp32KernelIsNotExcusedAsTf32) {
  Call c = call();
  c.inputs = c.o = c.state = Dtype::fp32;
  const auto slightly_off = [](const Stream<double>& st, double scale) {
    Output<double> o = exactly(st, scale);
    o.S(0, 0) += 3e-5 * o.S.norm();  // less than tf32 products would err by
    return o;
  };
  EXPECT_EQ(name(judged(c, slightly_off).verdict), name(Verdict::failed));
  const auto one_channel_off = [](const Stream<double>& st, double scale) {
    Output<double> o = exactly(st, scale);
    o.O.col(1) *= 1 + 1e-3;  // as much as they would, but in one place
    return o;
  };
  const FileVerdict v = judged(c, one_channel_off);
  EXPECT_EQ(name(v.verdict), name(Verdict::failed)) << v.reason;
}

TEST(Precision, Tf32ProductsInAFp32KernelAreMarginalAndBf16Fails) {
  Call c = call();
  c.inputs = c.o = Dtype::fp32;
  const FileVerdict v = judged(c, scheduled({.C = 64, .operand = kTf32, .inverse = kTf32, .stretch = 1.3}));
  EXPECT_EQ(v.verdict, Verdict::marginal);
  EXPECT_THAT(v.reason, HasSubstr("tf32"));
  Dump d = c.dump(scheduled({.C = 64}));
  const FileVerdict bf16 = judged(d);
  EXPECT_EQ(bf16.verdict, Verdict::failed);
  EXPECT_THAT(bf16.notes, testing::Contains(HasSubstr("hold only bf16 numbers")));  // as the family draws them
  edit(d, "q", [](std::vector<double>& q) { q[0] = 0.1; });
  EXPECT_THAT(judged(d).notes, testing::IsEmpty());
}

// ---------------------------------------------------------------- one mistake

TEST(Mistakes, FailInEveryRuleThatTheyTouch) {
  using Mistake = std::function<void(Stream<double>&)>;
  const std::pair<const char*, Mistake> mistakes[] = {
      {"erase missing",
       [](auto& s) {
         for (auto& m : s.steps) m.x.setZero();
       }},
      {"beta twice",
       [](auto& s) {
         for (auto& m : s.steps) m.beta *= m.beta;
       }},
      {"decay missing",
       [](auto& s) {
         for (auto& m : s.steps) m.d = {};
       }},
      {"sign of the error",
       [](auto& s) {
         for (auto& m : s.steps) m.x *= -1;
       }},
      {"initial state ignored", [](auto& s) { s.S0.setZero(); }},
      {"one token of a tail lost", [](auto& s) { s.steps.back().beta = 0; }},
      {"scale twice", [](auto& s) { s.Q *= 0.25; }}};
  for (const Rule* rule : rules())
    for (const auto& [what, mistake] : mistakes) {
      const Call c = call(rule->info.id, "gate_weak", 3);
      bool changed = false;
      const FileVerdict v = judged(c, [&](const Stream<double>& s, double scale) {
        Stream<double> wrong = s;
        mistake(wrong);
        const Output<double> a = exactly(s, scale), b = simulate<float>(wrong, scale, {});
        changed = changed || (a.O - b.O).norm() > 0.05 * a.O.norm() || (a.S - b.S).norm() > 0.05 * a.S.norm();
        return b;
      });
      if (changed) {
        EXPECT_EQ(name(v.verdict), name(Verdict::failed)) << rule->info.id << ": " << what;
      }
    }
}

TEST(Mistakes, NameTheFirstBadPlace) {
  Dump d = call().dump(scheduled({}));
  edit(d, "o", [](auto& o) { o[(41 * 2 + 1) * 12 + 7] += 0.5; });  // t 41, head 1, channel 7
  const FileVerdict v = judged(d);
  EXPECT_EQ(v.verdict, Verdict::failed);
  ASSERT_TRUE(v.first_bad);
  EXPECT_EQ(v.first_bad->tensor, "o");
  EXPECT_EQ(v.first_bad->t, 41);
  EXPECT_EQ(v.first_bad->head, 1);
  EXPECT_EQ(v.first_bad->channel, 7);
}

TEST(Maps, ShowWhereTheErrorIs) {
  Dump d =
      call("gated_delta", "gate_half", 1, {.B = 1, .T = 1100, .H = 1, .HV = 2, .d_k = 16, .d_v = 12}).dump(exactly);
  edit(d, "o", [](auto& o) { o[(901 * 2 + 1) * 12 + 7] += 0.5; });  // t 901, head 1, channel 7
  const FileVerdict v = judged(d);
  const Judged& o = *v.find("o");
  ASSERT_EQ(o.by_token.bin, 3);  // at most 512 rows
  ASSERT_EQ(o.by_token.ratio.rows(), 367);
  ASSERT_EQ(o.by_token.ratio.cols(), 2);
  ASSERT_EQ(o.by_channel.ratio.rows(), 12);
  EXPECT_DOUBLE_EQ(o.by_token.ratio(300, 1), v.ratio());
  EXPECT_EQ((o.by_token.ratio.array() > kMarginal).count(), 1);
  EXPECT_EQ((o.by_channel.ratio.col(0).array() > 4).count(), 0);
  EXPECT_GT(o.by_channel.ratio(7, 1), v.ratio());
  EXPECT_EQ(v.find("final_state")->by_token.ratio.rows(), 12);
  EXPECT_EQ(v.find("final_state")->by_channel.ratio.rows(), 16);
}

// ---------------------------------------------------------------- the checker itself

TEST(Checker, OneNanOrInfinityFails) {
  for (const double bad : {std::nan(""), HUGE_VAL})
    for (const char* tensor : {"o", "final_state"}) {
      Dump d = call().dump(scheduled({}));
      edit(d, tensor, [&](auto& x) { x[17] = bad; });
      const FileVerdict v = judged(d);
      EXPECT_EQ(v.verdict, Verdict::failed);
      EXPECT_THAT(v.reason, HasSubstr("not finite"));
      ASSERT_TRUE(v.first_bad);
      EXPECT_EQ(v.first_bad->tensor, tensor);
      const std::string json = verify_json({v});
      EXPECT_FALSE(nlohmann::json::parse(json, nullptr, false).is_discarded()) << json;
    }
}

TEST(Checker, UnwrittenOutputsFail) {
  for (const char* tensor : {"o", "final_state"}) {
    Dump d = call().dump(scheduled({}));
    edit(d, tensor, [](auto& x) { std::ranges::fill(x, 0.); });
    const FileVerdict v = judged(d);
    EXPECT_EQ(v.verdict, Verdict::failed);
    EXPECT_THAT(v.reason, HasSubstr("unwritten"));
  }
}

TEST(Checker, OneBadTailRowFails) {
  Dump d = call().dump(scheduled({}));
  edit(d, "o", [](auto& o) {
    for (std::size_t i = o.size() - 12; i < o.size(); ++i) o[i] *= 1.05;
  });
  EXPECT_EQ(judged(d).verdict, Verdict::failed);
}

TEST(Checker, AZeroReferenceIsNotTrusted) {
  Call c = call();
  std::ranges::fill(c.p.v.data, 0.);
  c.p.S0.clear();
  EXPECT_EQ(judged(c, scheduled({})).verdict, Verdict::untrusted);
}

TEST(Checker, NothingToJudgeIsNotTrusted) {
  Dump d = call().dump(scheduled({}));
  d.add("cu_seqlens", Dtype::i64, {1}, std::vector<double>{0});
  d.add("initial_state", Dtype::fp32, {0, 2, 16, 12}, {}), d.add("final_state", Dtype::fp32, {0, 2, 16, 12}, {});
  EXPECT_EQ(judged(d).verdict, Verdict::untrusted);
}

TEST(Checker, IllPosedInputsAreNotTheKernelsFault) {
  Call c = call("gated_delta", "gate_weak", 1, {.T = 130, .d_k = 64, .d_v = 8, .offsets = {}});
  Random r(1);
  for (double& k : c.p.k.data) k = kBf16.round(r.normal());  // |k|^2 = 64: the inverse grows without bound
  const FileVerdict v = judged(c, scheduled({.C = 48, .stretch = 1.5}));
  EXPECT_EQ(v.verdict, Verdict::untrusted);
  EXPECT_THAT(v.reason, testing::AllOf(HasSubstr("ill-posed"), HasSubstr("are the keys normalised?")));
}

TEST(Checker, OnlyLongKeysAreSuspected) {
  // What is read is the small difference of two values in two orthogonal keys, which a product in bf16 loses.
  const auto cancelling = [](std::string_view rule, double length) {
    Call c = call(rule, "gate_half", 1, {.B = 1, .T = 2, .d_k = 4, .d_v = 4, .offsets = {}});
    const auto rows = [](Tensor<double>& x, std::initializer_list<double> values) { x.data = values; };
    rows(c.p.q, {0, 0, 1, 0, 1, 1, 0, 0}), rows(c.p.k, {length, 0, 0, 0, 0, length, 0, 0});
    rows(c.p.v, {1, 1, 1, 1, -0.69921875, -0.69921875, -0.69921875, -0.69921875});
    for (double& x : c.p.beta.data) x = 1;
    for (double& x : c.p.alpha.data) x = 0.7;
    c.p.S0.clear();
    return c;
  };
  Call normalised = cancelling("gated_delta", 8);
  normalised.p.l2norm = 1e-6;
  for (const Call& c : {cancelling("gla", 8), cancelling("gated_delta", 1), normalised})
    EXPECT_THAT(judged(c, exactly).reason, testing::AllOf(HasSubstr("ill-posed"), Not(HasSubstr("normalised?"))));
}

TEST(NarrowState, IsTheEvidenceOnlyWhereAFp32StateShouldHoldMore) {
  const Kernel kept_in_bf16 = scheduled({.C = 64, .state = kBf16});
  Call c = call();
  EXPECT_THAT(judged(c, kept_in_bf16).reason, HasSubstr("only bf16 numbers"));
  EXPECT_THAT(judged(c, scheduled({.C = 64, .state = kFp16})).reason, HasSubstr("only fp16 numbers"));
  c.state = Dtype::bf16;  // the type of the tensor says it already
  EXPECT_EQ(judged(c, scheduled({})).verdict, Verdict::passed);

  c = call("gated_delta", "gate_half", 1, {.T = 0, .d_k = 16, .d_v = 8, .offsets = {}});  // the state of no token
  EXPECT_EQ(judged(c, exactly).verdict, Verdict::passed);

  // An empty sequence hands back the fp32 state that it was given.
  c = call("gated_delta", "gate_half", 1, {.T = 30, .d_k = 16, .d_v = 8, .offsets = {0, 12, 12, 30}});
  EXPECT_THAT(judged(c, kept_in_bf16).reason, HasSubstr("only bf16 numbers"));

  c = call("gated_delta", "gate_half", 1, {.T = 12, .d_k = 16, .d_v = 8, .offsets = {}});  // integers throughout
  for (double& x : c.p.v.data) x = std::round(x);
  for (double& x : c.p.k.data) x = 0;
  for (Index t = 0; t < 12; ++t) *c.p.k.at(0, t, 0) = 1;
  for (double& x : c.p.beta.data) x = 1;
  for (double& x : c.p.alpha.data) x = 1;
  for (auto& S : c.p.S0) S = S.array().round().matrix();
  EXPECT_EQ(judged(c, exactly).verdict, Verdict::passed);
}

// ---------------------------------------------------------------- layouts, options, packed sequences

TEST(Layout, VkIsTheTransposeOfKv) {
  Dump d = call().dump(scheduled({}));
  for (const char* name : {"initial_state", "final_state"})
    edit(d, name,
         [&](auto& x) {
           const auto old = x;
           for (Index m = 0; m < 2; ++m)
             for (Index k = 0; k < 16; ++k)
               for (Index v = 0; v < 12; ++v)
                 x[static_cast<std::size_t>((m * 12 + v) * 16 + k)] =
                     old[static_cast<std::size_t>((m * 16 + k) * 12 + v)];
         }),
        d.tensors[name].shape = {1, 2, 12, 16};
  d.metadata["state_layout"] = "vk";
  EXPECT_EQ(judged(d).verdict, Verdict::passed);
  d.metadata.erase("state_layout");  // d_k != d_v says it too
  EXPECT_EQ(judged(d).verdict, Verdict::passed);
  EXPECT_THAT(complaint(d, {.state_layout = "kv"}), HasSubstr("expected [N,HV,d_k,d_v]"));
}

TEST(Options, StandInForMetadata) {
  Dump d = call().dump(scheduled({}));
  const std::string scale = d.metadata["scale"];
  d.metadata.clear();
  EXPECT_THAT(complaint(d), HasSubstr("--rule"));
  EXPECT_THAT(complaint(d, {.rule = "gdn"}), HasSubstr("--scale"));
  EXPECT_EQ(verify(d, {.rule = "gdn", .scale = scale, .state_layout = "kv"}, 1).verdict, Verdict::passed);
  EXPECT_THAT(complaint(d, {.rule = "gdn", .scale = "1/8"}), HasSubstr("expected a number"));
  EXPECT_THAT(complaint(d, {.rule = "gdn2000", .scale = "1"}), HasSubstr("unknown rule"));
}

TEST(Packed, SequencesAreApartAndSlackRowsAreNotJudged) {
  Call c = call("gated_delta", "gate_weak", 1,
                {.B = 1, .T = 100, .H = 1, .HV = 2, .d_k = 16, .d_v = 12, .offsets = {0, 5, 5, 69, 90}});
  Dump d = c.dump(scheduled({}));
  for (const char* tensor : {"q", "k", "v", "o"})
    edit(d, tensor,
         [](auto& x) { std::fill(x.begin() + static_cast<std::ptrdiff_t>(x.size()) / 100 * 90, x.end(), NAN); });
  EXPECT_EQ(judged(d).verdict, Verdict::passed) << judged(d).reason;
  edit(d, "cu_seqlens", [](auto& x) { x = {0, 5, 6, 69, 90}; });  // a token changes sides
  EXPECT_EQ(judged(d).verdict, Verdict::failed);
}

TEST(Gates, LogarithmAndDecayAreTheSameAndResetsAreLegal) {
  Call c = call("gated_delta", "alpha_zero");
  Dump d = c.dump(scheduled({}));
  EXPECT_EQ(judged(d).verdict, Verdict::passed);
  std::vector<double> g = c.p.alpha.data;
  for (double& x : g) x = std::log(x);  // -inf at a reset
  d.tensors.erase("alpha");
  d.add("g", Dtype::fp32, {1, 70, 2}, g);
  EXPECT_EQ(judged(d).verdict, Verdict::passed);
}

TEST(Normalisation, IsDoneWhereTheDumpAsksForIt) {
  Call c = call();
  const double eps = 1e-6;
  Dump d = c.dump(exactly);  // q and k of unit length; then scaled, which the norm takes back
  for (const char* tensor : {"q", "k"})
    edit(d, tensor, [](auto& x) {
      for (double& y : x) y *= 1.25;
    });
  EXPECT_EQ(judged(d).verdict, Verdict::failed);
  d.metadata["qk_l2norm"] = std::to_string(eps);
  EXPECT_EQ(judged(d).verdict, Verdict::passed) << judged(d).reason;
}

// ---------------------------------------------------------------- bad input

TEST(BadInput, IsNamedInOneLine) {
  const Dump good = call().dump(scheduled({}));
  const auto after = [&](const std::function<void(Dump&)>& change) {
    Dump d = good;
    change(d);
    return complaint(d);
  };
  const auto reshaped = [&](const char* tensor, std::vector<std::int64_t> shape) {
    return after([&](Dump& d) { d.tensors[tensor].shape = shape; });
  };
  const auto with = [&](const char* tensor, std::size_t i, double x) {
    return after([&](Dump& d) { edit(d, tensor, [&](auto& v) { v[i] = x; }); });
  };
  for (const char* tensor : {"q", "k", "v", "o"})
    EXPECT_THAT(after([&](Dump& d) { d.tensors.erase(tensor); }),
                HasSubstr("lacks the tensor '" + std::string(tensor) + "' (the file holds "));
  EXPECT_THAT(reshaped("k", {1, 70, 2, 8}), HasSubstr("expected [B,T,H,d_k] = [1,70,1,16]"));
  EXPECT_THAT(reshaped("q", {70, 16}), HasSubstr("four axes"));
  EXPECT_THAT(reshaped("beta", {1, 2, 70}), HasSubstr("[B,T,HV] = [1,70,2]"));
  EXPECT_THAT(reshaped("final_state", {1, 2, 12, 16}), HasSubstr("[N,HV,d_k,d_v]"));
  EXPECT_THAT(after([](Dump& d) {
                for (const char* t : {"q", "k"}) d.tensors[t].shape = {1, 70, 4, 4};
                for (const char* t : {"v", "o"}) d.tensors[t].shape = {1, 70, 6, 4};
              }),
              HasSubstr("multiple of H"));
  EXPECT_THAT(with("k", 3 * 16 + 5, NAN), testing::AllOf(HasSubstr("'k'"), HasSubstr("t 3"), HasSubstr("channel 5")));
  EXPECT_THAT(with("beta", 9, INFINITY), testing::AllOf(HasSubstr("'beta'"), HasSubstr("t 4"), HasSubstr("head 1")));
  EXPECT_THAT(with("initial_state", 4, NAN), HasSubstr("initial_state"));
  EXPECT_THAT(with("alpha", 0, -0.1), HasSubstr("name the tensor 'g'"));
  EXPECT_THAT(after([](Dump& d) {
                d.add("g", Dtype::fp32, {1, 70, 2}, std::vector<double>(140, -0.1));
              }),
              HasSubstr("both"));
  EXPECT_THAT(after([](Dump& d) {
                d.tensors.erase("alpha");
                d.add("g", Dtype::fp32, {1, 70, 2}, std::vector<double>(140, 0.9));
              }),
              HasSubstr("name the tensor 'alpha'"));
  EXPECT_THAT(after([](Dump& d) {
                d.add("lambda", Dtype::fp32, {1, 70, 2}, std::vector<double>(140, 0.5));
              }),
              HasSubstr("takes no lambda"));
  const auto offsets = [&](std::vector<double> at) {
    return after([&](Dump& d) { d.add("cu_seqlens", Dtype::i32, {static_cast<std::int64_t>(at.size())}, at); });
  };
  EXPECT_THAT(offsets({0, 12, 8, 70}), HasSubstr("do not decrease"));
  EXPECT_THAT(offsets({0, 71}), HasSubstr("at most T = 70"));
  EXPECT_THAT(offsets({1, 70}), HasSubstr("first offset"));
  EXPECT_THAT(offsets({0, 30, 70}), HasSubstr("initial_state"));
  EXPECT_THAT(after([](Dump& d) { d.metadata["state_layout"] = "vd"; }), HasSubstr("kv"));
  EXPECT_THAT(after([](Dump& d) { d.metadata["scale"] = "nan"; }), HasSubstr("scale"));
  EXPECT_THAT(after([](Dump& d) {
                d.add("o", Dtype::i32, {1, 70, 2, 12}, std::vector<double>(1680));
              }),
              HasSubstr("integers"));
}

TEST(BadInput, AllThatIsMissingIsNamedAtOnce) {
  Dump d =
      call("gated_delta", "gate_half", 1, {.B = 1, .T = 9, .HV = 2, .d_k = 4, .d_v = 4, .offsets = {}}).dump(exactly);
  d.metadata.clear(), d.tensors.erase("k"), d.tensors.erase("o");
  const std::string all = complaint(d);
  for (const char* what : {"the tensor 'k'", "the tensor 'o'", "--rule", "--scale", "--state-layout"})
    EXPECT_THAT(all, HasSubstr(what));
  const std::string layout = complaint(d, {.rule = "gdn", .scale = "1"});
  EXPECT_THAT(layout, HasSubstr("--state-layout"));
  EXPECT_THAT(layout, Not(HasSubstr("--rule")));
}

// ---------------------------------------------------------------- tensors that nobody needs

TEST(Strangers, OfAnyTypeAreNotedAndNotRead) {
  Dump d = call().dump(scheduled({}));
  d.tensors.erase("initial_state"), d.tensors.erase("final_state");
  const FileVerdict without = judged(d);
  d.unread["attention_mask"] = "is of type BOOL, which is not read";
  const FileVerdict with = judged(d);
  EXPECT_EQ(with.verdict, without.verdict);
  EXPECT_THAT(with.notes, testing::Contains(HasSubstr("'attention_mask'")));
  EXPECT_THAT(with.hints, testing::IsEmpty());
  d.unread["beta"] = "is of type U8, which is not read", d.tensors.erase("beta");
  EXPECT_THAT(complaint(d), HasSubstr("tensor 'beta' is of type U8"));
}

TEST(Strangers, WithNearlyTheNameOfATensorThatIsNotThereAreAskedAboutFirst) {
  for (const auto& [typed, meant] : std::initializer_list<std::pair<const char*, const char*>>{
           {"betas", "beta"}, {"Beta", "beta"}, {"ALPHA", "alpha"}, {"init_state", "initial_state"}}) {
    Dump d = call().dump(scheduled({}));
    auto moved = d.tensors.extract(meant);
    moved.key() = typed;
    d.tensors.insert(std::move(moved));
    const FileVerdict v = judged(d);
    ASSERT_EQ(v.hints.size(), 1u) << typed;
    EXPECT_THAT(v.hints[0], HasSubstr("is it '" + std::string(meant) + "'?"));
    const std::string text = verify_text(v, {});
    EXPECT_LT(text.find(v.hints[0].substr(0, 30)), text.find("ratio")) << "above the figures";
  }
  Dump d = call().dump(scheduled({}));
  d.tensors["betas"] = *d.find("beta");  // beta is there: a further tensor of somebody's
  EXPECT_THAT(judged(d).hints, testing::IsEmpty());
  EXPECT_THAT(judged(d).notes, testing::Contains(HasSubstr("'betas'")));
}

/// A few bytes can promise any number of heads or channels, as long as there is no token.
TEST(BadInput, SizesThatNoKernelHasAreRefusedBeforeAnythingIsAllocated) {
  const auto sized = [](std::int64_t B, std::int64_t T, std::int64_t H, std::int64_t K, std::int64_t V) {
    Dump d{.file = "made", .metadata = {{"rule", "gated_delta"}, {"scale", "1"}}};
    for (const char* t : {"q", "k"}) d.tensors[t].shape = {B, T, H, K};
    for (const char* t : {"v", "o"}) d.tensors[t].shape = {B, T, H, V};
    return complaint(d);
  };
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  EXPECT_THAT(sized(kHuge, 0, 1, 8, 8), HasSubstr("heads in all"));
  EXPECT_THAT(sized(1, 0, kHuge, 8, 8), HasSubstr("heads in all"));
  EXPECT_THAT(sized(1 << 20, 0, 1 << 12, 8, 8), HasSubstr("heads in all"));
  EXPECT_THAT(sized(1, 0, 1, kHuge, 8), HasSubstr("at most 2048 channels"));
  EXPECT_THAT(sized(1, 0, 1, 8, kHuge), HasSubstr("at most 2048 channels"));
}

TEST(Report, JsonHasTheFieldsOfTheContract) {
  const FileVerdict good = of_file("case_04");
  const FileVerdict none = verify_file("/nonexistent.npz", {}, 2);
  const nlohmann::json files = nlohmann::json::parse(verify_json({good, none}))["files"];
  ASSERT_EQ(files.size(), 2u);
  for (const char* key : {"file", "rule", "verdict", "reason", "ratio", "rel_error", "expected_error", "grade",
                          "dominant", "first_bad", "judge", "diagnosis"})
    EXPECT_TRUE(files[0].contains(key)) << key;
  for (const char* key : {"tensor", "b", "t", "head", "channel", "want", "got"})
    EXPECT_TRUE(files[0]["first_bad"].contains(key)) << key;
  EXPECT_EQ(files[0]["verdict"], "failed");
  ASSERT_EQ(files[0]["outputs"].size(), 2u);
  for (const char* key : {"tensor", "ratio", "error", "expected", "rel_error"})
    for (const auto& output : files[0]["outputs"]) EXPECT_TRUE(output.contains(key)) << key;
  EXPECT_EQ(files[0]["expected_error"]["o"], files[0]["outputs"][0]["expected"]);
  EXPECT_EQ(files[0]["rel_error"]["final_state"], files[0]["outputs"][1]["rel_error"]);
  EXPECT_EQ(files[1]["verdict"], "unreadable");
}

}  // namespace
}  // namespace delta
