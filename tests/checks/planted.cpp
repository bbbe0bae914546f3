// SPDX-License-Identifier: Apache-2.0
// Faults that were reported in public kernels, each planted in one that is right otherwise: what must be said of it.
#include <gmock/gmock.h>

#include "checks/mutants/mutants.hpp"
#include "tests/checks/made.hpp"

namespace delta {
namespace {

using testing::HasSubstr;

/// The chunk form with one solve; edit(rows, S) changes its rows, or the state at the chunk's start, in place.
template <class F> Output<double> chunks_with(const Stream<double>& s, double scale, Index C, F edit) {
  Output<double> out{Mat<double>(s.tokens(), s.d_v()), s.S0};
  for (Index begin = 0; begin < s.tokens(); begin += C) {
    const Index R = std::min(C, s.tokens() - begin);
    ChunkRows<double> r(s, begin, R);
    Mat<double> decayed = r.gamma[R - 1] * out.S;  // [d_v x d_k]
    edit(r, out.S, decayed);
    const Mat<double> L = strictly_lower<double>(r.beta.asDiagonal() * r.H.cwiseProduct(r.X * r.Y.transpose()));
    const Mat<double> rest = r.V - r.gamma.asDiagonal() * (r.X * out.S.transpose());
    const Mat<double> Z = solve_unit_lower<double>(L, r.beta.asDiagonal() * rest);  // [R x d_v]
    const Mat<double> A = lower<double>(r.H.cwiseProduct(r.Q * r.Y.transpose()));   // [R x R]
    out.O.middleRows(begin, R) = scale * (r.gamma.asDiagonal() * (r.Q * out.S.transpose()) + A * Z);
    out.S = decayed + Z.transpose() * r.H.row(R - 1).asDiagonal() * r.Y;
  }
  return out;
}

/// Row 57, 59, 61 or 63 of a chunk of 64, depending on the key channel, instead of row 63.
Output<double> decayed_by_thread(const Stream<double>& s, double scale) {
  return chunks_with(s, scale, 64, [](ChunkRows<double>& r, Mat<double>& S, Mat<double>& decayed) {
    for (Index k = 0; k < S.cols() && r.gamma.size() == 64; ++k) decayed.col(k) = r.gamma[57 + 2 * (k % 4)] * S.col(k);
  });
}

Kernel after(void (*mistake)(Stream<double>&)) {
  return [mistake](Stream<double> s, double scale) {
    mistake(s);
    return exactly(s, scale);
  };
}

Backward backward(void (*mistake)(StreamAdjoint<double>&)) {
  return [mistake](const Stream<double>& s, double scale, const Mat<double>& dO, const Mat<double>& dS) {
    StreamAdjoint<double> a = exact_gradient(s, scale, dO, dS);
    mistake(a);
    return a;
  };
}

/// Edits of a [1, T, heads, d] output, element by element.
void edit_o(Dump& d, const std::function<void(double& x, Index t, Index head, Index channel)>& f) {
  const std::vector<std::int64_t> z = d.find("o")->shape;
  edit(d, "o", [&](std::vector<double>& o) {
    for (std::size_t i = 0; i < o.size(); ++i) {
      const auto at = static_cast<Index>(i);
      f(o[i], at / (z[2] * z[3]), at / z[3] % z[2], at % z[3]);
    }
  });
}

Call in(Dtype type, Call c) {
  c.inputs = c.o = type;
  return c;
}
Call normalising(double length, double eps) {
  Call c = call("gated_delta", "gate_half", 3, {.B = 1, .T = 40, .d_k = 16, .d_v = 12});
  for (Tensor<double>* x : {&c.p.q, &c.p.k})
    for (double& e : x->data) e = std::ldexp(e, std::ilogb(length));
  c.p.l2norm = eps;
  return c;
}

constexpr Shape kSquare{.B = 1, .T = 130, .H = 1, .HV = 2, .d_k = 16, .d_v = 16, .offsets = {}};

/// A fault: where it was reported, what it is, how it is planted, and what must be said.
struct Fault {
  const char* report;
  const char* what;
  std::function<Dump()> planted;
  Verdict verdict = Verdict::failed;
  std::string diagnosis = {};  ///< id that must come first; "unknown": none may be named; empty: anything
  std::string place = {};      ///< a pattern that must be found
  std::string reason = {};     ///< part of the verdict's reason
};

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all{
      {"B01", "a guarded exp masks away decays of exactly 1",
       [] {
         return call("gated_delta", "gate_masked", 1, kSquare).dump([](const Stream<double>& s, double scale) {
           return chunks_with(s, scale, 64, [](ChunkRows<double>& r, auto&, auto&) {
             for (Index i = 0; i < r.H.rows(); ++i)
               for (Index j = 0; j < i; ++j)
                 if (r.H(i, j) == 1) r.H(i, j) = 0;
           });
         });
       },
       Verdict::failed, "unknown"},
      {"B02", "exp(-sum g) as a factor overflows",
       [] {
         return call("gated_delta", "gate_floor", 1, kSquare).dump([](const Stream<double>& s, double scale) {
           return chunks_with(s, scale, 64, [](ChunkRows<double>& r, auto&, auto&) {
             for (Index i = 0; i < r.H.rows(); ++i)
               for (Index j = 0; j <= i; ++j)
                 r.H(i, j) = static_cast<float>(r.gamma[i]) * (1 / static_cast<float>(r.gamma[j]));
           });
         });
       },
       Verdict::failed, "unknown", "", "not finite"},
      {"B04", "the kernel wants the decay, the caller passes its logarithm",
       [] { return call("gated_delta", "gate_half", 1, kSquare).dump_of("gate-log-as-linear"); }, Verdict::failed,
       "gate-log-as-linear"},
      {"B04", "the kernel wants the logarithm, the caller passes the decay",
       [] {
         return call("gated_delta", "gate_half", 1, {.B = 1, .T = 20, .d_k = 16, .d_v = 16})
             .dump_of("gate-linear-as-log");
       },
       Verdict::failed, "gate-linear-as-log"},
      {"B04", "the kernel takes a natural logarithm for one of base 2",
       [] { return call("gated_delta", "gate_half", 1, kSquare).dump_of("gate-base-2"); }, Verdict::failed,
       "gate-base-2"},
      {"B06", "one bad gate, and the state is NaN ever after",
       [] {
         Dump d = call("gated_delta", "gate_half", 1, kSquare).dump(scheduled({}));
         edit_o(d, [](double& x, Index t, Index, Index) { x = t >= 33 ? NAN : x; });
         edit(d, "final_state", [](auto& S) { std::ranges::fill(S, NAN); });
         return d;
       },
       Verdict::failed, "unknown", "from token 33 on", "not finite"},
      {"B08", "keys that are not normalised: nobody's fault",
       [] {
         Call c = call("gated_delta", "gate_weak", 1, {.T = 130, .d_k = 64, .d_v = 8, .offsets = {}});
         Random r(1);
         for (double& k : c.p.k.data) k = kBf16.round(r.normal());
         return c.dump(scheduled({.C = 48, .stretch = 1.5}));
       },
       Verdict::untrusted, "unknown", "", "ill-posed"},
      {"B10", "a reduction of dg goes through bf16",
       [] {
         return call("gated_delta", "gate_half", 1, kSquare).dump(scheduled({}), backward([](StreamAdjoint<double>& a) {
                                                                    for (auto& m : a.steps)
                                                                      m.d.d[0] = kBf16.round(m.d.d[0] + 256) - 256;
                                                                  }));
       },
       Verdict::failed, "unknown", "", "dg"},
      {"B11", "the write key gets no gradient",
       [] {
         return call("gated_delta", "gate_half", 1, kSquare).dump(scheduled({}), backward([](StreamAdjoint<double>& a) {
                                                                    for (auto& m : a.steps) m.y.setZero();
                                                                  }));
       },
       Verdict::failed, "unknown", "", "dk"},
      {"B12", "half of each tile of dbeta is halved by a miscompiled transpose",
       [] {
         return call("gated_delta", "gate_half", 1, kSquare).dump(scheduled({}), backward([](StreamAdjoint<double>& a) {
                                                                    for (std::size_t t = 0; t < a.steps.size(); ++t)
                                                                      a.steps[t].beta *= t % 64 >= 32 ? 0.25 : 1;
                                                                  }));
       },
       Verdict::failed, "unknown", "", "dbeta"},
      {"B13", "a race in one head",
       [] {
         Dump d = call("gated_delta", "gate_half", 1, {.B = 1, .T = 130, .H = 4, .HV = 4, .d_k = 16, .d_v = 16})
                      .dump(scheduled({}));
         Random r(1);
         edit_o(d, [&](double& x, Index t, Index head, Index) { x += t >= 64 && head == 2 ? r.normal() : 0; });
         return d;
       },
       Verdict::failed, "unknown", "only head 2"},
      {"B16", "the state decays to the last row of each thread, not of the chunk",
       [] { return in(Dtype::fp32, call("gated_delta", "gate_weak", 1, kSquare)).dump(decayed_by_thread); },
       Verdict::failed, "unknown", "o: from token 64 on"},
      {"B16", "the same, before the next chunk spreads it over all channels",
       [] {
         return in(Dtype::fp32, call("gated_delta", "gate_weak", 1, {.B = 1, .T = 64, .d_k = 16, .d_v = 16}))
             .dump(decayed_by_thread);
       },
       Verdict::failed, "unknown", "key channels with period 4: 0, 1, 2, ..."},
      {"B18", "an empty sequence does not hand its state on",
       [] {
         Dump d = call("gated_delta", "gate_half", 1, {.B = 1, .T = 69, .d_k = 16, .d_v = 12, .offsets = {0, 5, 5, 69}})
                      .dump(scheduled({}));
         edit(d, "final_state", [](auto& S) { std::fill(S.begin() + 16 * 12, S.begin() + 2 * 16 * 12, 0.); });
         return d;
       },
       Verdict::failed, "", "only sequence 1"},
      {"B19", "packed sequences see each other",
       [] {
         return call("gated_delta", "gate_weak", 1,
                     {.B = 1, .T = 200, .d_k = 16, .d_v = 16, .offsets = {0, 37, 64, 129, 200}})
             .dump_of("segment-leak");
       },
       Verdict::failed, "segment-leak", "only sequences >= 1"},
      {"B20", "rows behind the last sequence are never written: nobody's business",
       [] {
         Dump d = call("gated_delta", "gate_half", 1, {.B = 1, .T = 128, .d_k = 16, .d_v = 12, .offsets = {0, 50, 100}})
                      .dump(scheduled({}));
         edit_o(d, [](double& x, Index t, Index, Index) { x = t >= 100 ? NAN : x; });
         return d;
       },
       Verdict::passed, "unknown"},
      {"B22", "NaN of the padding is mixed into the last tile",
       [] {
         Dump d = call("gated_delta", "gate_half", 1, {.B = 1, .T = 128, .d_k = 16, .d_v = 12, .offsets = {0, 50, 100}})
                      .dump(scheduled({}));
         edit_o(d, [](double& x, Index t, Index, Index) { x = t >= 64 ? NAN : x; });
         return d;
       },
       Verdict::failed, "unknown", "only sequence 1", "not finite"},
      {"B24", "a sequence that starts inside a chunk decays from the chunk's start",
       [] {
         const Call c =
             call("gated_delta", "gate_half", 1, {.B = 1, .T = 120, .d_k = 16, .d_v = 16, .offsets = {0, 40, 75, 120}});
         Problem<double> p = c.p;
         for (std::size_t n = 1; n < p.S0.size(); ++n) p.S0[n] *= 0.9;
         return c.dump(compute<double>(*c.rule, "recurrent", 0, p));
       },
       Verdict::failed, "unknown", "only sequences >= 1"},
      {"B27", "the state of one accepted token too few",
       [] {
         return call("gated_delta", "gate_half", 1, kSquare).dump([](const Stream<double>& s, double scale) {
           Output<double> o = exactly(s, scale);
           Stream<double> shorter = s;
           shorter.steps.pop_back(), shorter.Q.conservativeResize(s.tokens() - 1, Eigen::NoChange);
           o.S = exactly(shorter, scale).S;
           return o;
         });
       },
       Verdict::failed, "unknown"},
      {"B28", "padding writes into the slot of a real state",
       [] {
         const Call c = call("gated_delta", "gate_half", 1, {.B = 3, .T = 20, .d_k = 16, .d_v = 16});
         Result<double> r = compute<double>(*c.rule, "recurrent", 0, c.p);
         r[0].S = r[2].S;
         return c.dump(r);
       },
       Verdict::failed, "unknown", "sequence 0 repeats sequence 2"},
      {"B29", "the final state is stored [d_v, d_k]",
       [] { return call("gated_delta", "gate_weak", 1, kSquare).dump_of("final-state-transposed"); }, Verdict::failed,
       "final-state-transposed"},
      {"B29", "the initial state is read as [d_v, d_k]",
       [] { return call("gated_delta", "gate_weak", 1, kSquare).dump_of("initial-state-transposed"); }, Verdict::failed,
       "initial-state-transposed"},
      {"B31", "gates are read per key head",
       [] {
         const Call c = call("gated_delta", "heads_apart", 1, {.B = 1, .T = 40, .H = 2, .HV = 6, .d_k = 16, .d_v = 16});
         Problem<double> p = c.p;
         for (Index t = 0; t < 40; ++t)
           for (Index j = 0; j < 6; ++j) *p.alpha.at(0, t, j) = *c.p.alpha.at(0, t, j / 3);
         return c.dump(compute<double>(*c.rule, "recurrent", 0, p));
       },
       Verdict::failed, "unknown", "only heads >= 1"},
      {"B31", "key heads are tiled, not repeated",
       [] {
         return call("gated_delta", "gate_half", 1, {.B = 1, .T = 40, .H = 2, .HV = 6, .d_k = 16, .d_v = 16})
             .dump_of("heads-tiled");
       },
       Verdict::failed, "heads-tiled"},
      {"B34", "eps is added to the mean of squares", [] { return normalising(1e-3, 1e-6).dump_of("l2norm-eps"); },
       Verdict::failed, "l2norm-eps"},
      {"B34", "max(norm, eps) for sqrt(sum + eps)", [] { return normalising(1e-3, 1e-6).dump_of("l2norm-eps/floor"); },
       Verdict::failed, "l2norm-eps"},
      {"B34", "nothing is normalised", [] { return normalising(4, 1e-6).dump_of("l2norm-missing"); }, Verdict::failed,
       "l2norm-missing"},
      {"B34", "only the key is normalised", [] { return normalising(4, 1e-6).dump_of("normalised-k-only"); },
       Verdict::failed, "normalised-k-only"},
      {"B34", "normalised twice", [] { return normalising(1, 1).dump_of("l2norm-twice"); }, Verdict::failed,
       "l2norm-twice"},
      {"B36", "the scale is folded into q and applied again", [] { return call().dump_of("scale-twice"); },
       Verdict::failed, "scale-twice"},
      {"B36", "the scale of the other width",
       [] {
         const Call c = call("gated_delta", "gate_half", 1, {.B = 1, .T = 40, .d_k = 16, .d_v = 36});
         Problem<double> p = c.p;
         p.scale /= 6;
         return c.dump(compute<double>(*c.rule, "recurrent", 0, p));
       },
       Verdict::failed, "output-scaled"},
      {"B37", "key and value swap roles in the error",
       [] {
         return call("gated_delta", "gate_half", 1, kSquare).dump(after([](Stream<double>& s) {
           for (auto& m : s.steps) std::swap(m.x, m.v), m.x *= 0.1;
         }));
       },
       Verdict::failed, "unknown"},
      {"B38", "the printed mask for the one with decays",
       [] { return call("gated_delta", "gate_half", 1, kSquare).dump_of("decay-mask-missing"); }, Verdict::failed,
       "decay-mask-missing"},
      {"B38", "the error is taken before the decay",
       [] { return call("gated_delta", "gate_half", 1, kSquare).dump_of("decay-after-read"); }, Verdict::failed,
       "decay-after-read"},
      {"B41", "beta is rounded to bf16 on its way into a fp32 kernel",
       [] {
         Call c = in(Dtype::fp32, call("gated_delta", "gate_half", 1, kSquare));
         for (double& b : c.p.beta.data) b = static_cast<float>(b * 1.0013);
         return c.dump(after([](Stream<double>& s) {
           for (auto& m : s.steps) m.beta = kBf16.round(m.beta);
         }));
       },
       Verdict::failed, "unknown"},
      {"B42", "the state is written back in bf16: small writes are lost",
       [] {
         return in(Dtype::fp32, call("gated_delta", "small_writes", 1, {.B = 1, .T = 400, .d_k = 16, .d_v = 16}))
             .dump_of("state-rounded");
       },
       Verdict::failed, "state-rounded"},
      {"B44", "a base offset wraps: the last batch entry is another one's",
       [] {
         const Call c = call("gated_delta", "gate_half", 1, {.B = 3, .T = 20, .H = 2, .HV = 2, .d_k = 16, .d_v = 16});
         Result<double> r = compute<double>(*c.rule, "recurrent", 0, c.p);
         r[4] = r[0], r[5] = r[1];
         return c.dump(r);
       },
       Verdict::failed, "unknown", "sequence 2 repeats sequence 0"},
      {"B46", "channels beyond a power of two are read past the end",
       [] {
         Dump d = call("gated_delta", "gate_half", 1, {.B = 1, .T = 20, .d_k = 20, .d_v = 100}).dump(scheduled({}));
         edit_o(d, [](double& x, Index, Index, Index c) { x = c >= 96 ? NAN : x; });
         return d;
       },
       Verdict::failed, "unknown", "only channels >= 96", "not finite"},
      {"B47", "the offsets of an earlier call",
       [] {
         const Call c =
             call("gated_delta", "gate_half", 1, {.B = 1, .T = 100, .d_k = 16, .d_v = 16, .offsets = {0, 37, 100}});
         Problem<double> p = c.p;
         p.shape.offsets = {0, 60, 100};
         Result<double> wrong = compute<double>(*c.rule, "recurrent", 0, p), right = wrong;
         Mat<double> O(100, 16);
         O << wrong[0].O, wrong[1].O;
         right[0].O = O.topRows(37), right[1].O = O.bottomRows(63);
         return c.dump(right);
       },
       Verdict::failed, "unknown"},
      {"B50", "nothing is written into a buffer of zeros",
       [] { return call("gated_delta", "gate_half", 1, kSquare).dump_of("output-unwritten"); }, Verdict::failed,
       "output-unwritten", "", "unwritten"},
      {"B50", "nothing is written into a poisoned buffer",
       [] {
         Dump d = call().dump(scheduled({}));
         edit_o(d, [](double& x, Index, Index, Index) { x = NAN; });
         return d;
       },
       Verdict::failed, "unknown", "", "not finite"},
      {"rows", "one warp of each tile",
       [] {
         Dump d = call("gated_delta", "gate_half", 1, kSquare).dump(scheduled({}));
         edit_o(d, [](double& x, Index t, Index, Index) { x *= t % 16 >= 4 && t % 16 < 12 ? 1.5 : 1; });
         return d;
       },
       Verdict::failed, "unknown", "rows 4 to 11 of each chunk of 16"},
      {"channels", "one element of each vector load",
       [] {
         Dump d = call("gated_delta", "gate_half", 1, kSquare).dump(scheduled({}));
         edit_o(d, [](double& x, Index, Index, Index c) { x = c % 4 == 3 ? -x : x; });
         return d;
       },
       Verdict::failed, "unknown", "channels with period 4: 3, 7, 11, ..."}};
  return all;
}

class Reported : public testing::TestWithParam<std::size_t> {};

TEST_P(Reported, IsCaught) {
  const Fault& f = faults()[GetParam()];
  const FileVerdict v = judged(f.planted());
  const std::string first = v.diagnosis.empty() ? "unknown" : v.diagnosis[0].id;
  std::string places;
  for (const Pattern& p : v.patterns) places += p.tensor + ": " + p.text + "\n";
  EXPECT_EQ(name(v.verdict), name(f.verdict)) << f.what << ": " << v.reason;
  EXPECT_EQ(f.diagnosis.empty() ? first : f.diagnosis, first) << f.what;
  EXPECT_THAT(places, HasSubstr(f.place)) << f.what;
  EXPECT_THAT(v.reason, HasSubstr(f.reason)) << f.what;
}

INSTANTIATE_TEST_SUITE_P(Faults, Reported, testing::Range<std::size_t>(0, faults().size()), [](const auto& i) {
  return std::string(faults()[i.param].report) + "_" + std::to_string(i.param);
});

TEST(Reported, TheOtherWidthIsNamed) {
  for (const Fault& f : faults())
    if (f.diagnosis == "output-scaled") {
      EXPECT_EQ(judged(f.planted()).diagnosis.at(0).factor_is, "1/sqrt(d_v)");
    }
}

// ---------------------------------------------------------------- correct kernels

class Correct : public testing::TestWithParam<const Rule*> {};

TEST_P(Correct, NeverGetsADiagnosisNorAPlace) {
  Random r(7);
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    const Family& family = families()[static_cast<std::size_t>(r.below(static_cast<Index>(families().size())))];
    if (!family.concerns(GetParam()->info) || family.judge == Judge::conditioned) continue;
    const Index H = 1 + r.below(2);
    const Size size({.B = 1 + r.below(2),
                     .T = 1 + r.below(90),
                     .H = H,
                     .HV = H * (1 + r.below(2)),
                     .d_k = 4 << r.below(3),
                     .d_v = 4 << r.below(3),
                     .n_h = 2,
                     .offsets = {}});
    Call c = call(GetParam()->info.id, family.name, seed, family.at ? family.at(size).shape : size.shape);
    const std::pair<Dtype, Format> types[] = {{Dtype::bf16, kBf16}, {Dtype::fp16, kFp16}, {Dtype::fp32, kFp32}};
    const auto& [type, format] = types[r.below(3)];
    const Index lengths[] = {0, 16, 32, 64, 128};
    const FileVerdict v = judged(in(type, c), scheduled({.C = lengths[r.below(5)],
                                                         .one_solve = r.below(2) == 1,
                                                         .operand = format,
                                                         .inverse = format,
                                                         .stretch = r.uniform(1, 2)}));
    EXPECT_NE(v.verdict, Verdict::failed) << family.name << ", seed " << seed << ": " << v.reason;
    EXPECT_TRUE(v.diagnosis.empty()) << family.name << ", seed " << seed << ": " << v.diagnosis[0].id;
    EXPECT_TRUE(v.patterns.empty()) << family.name << ", seed " << seed << ": " << v.patterns[0].text;
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, Correct, testing::ValuesIn(rules()),
                         [](const auto& rule) { return std::string(rule.param->info.id); });

// ---------------------------------------------------------------- the words

TEST(Phrase, IsExactOrEmpty) {
  const auto of = [](Index n, const std::string& what, auto wrong) {
    std::vector<bool> places;
    for (Index i = 0; i < n; ++i) places.push_back(wrong(i));
    return phrase(places, what);
  };
  EXPECT_EQ(of(8, "head", [](Index) { return true; }), "");
  EXPECT_EQ(of(8, "head", [](Index) { return false; }), "");
  EXPECT_EQ(of(8, "head", [](Index i) { return i >= 2; }), "only heads >= 2");
  EXPECT_EQ(of(8, "head", [](Index i) { return i == 2; }), "only head 2");
  EXPECT_EQ(of(8, "head", [](Index i) { return i % 2 == 1; }), "heads with period 2: 1, 3, 5, ...");
  EXPECT_EQ(of(130, "token", [](Index i) { return i >= 64; }), "from token 64 on");
  EXPECT_EQ(of(130, "token", [](Index i) { return i >= 64 && i < 80; }), "only tokens 64 to 79");
  EXPECT_EQ(of(130, "token", [](Index i) { return i % 64 >= 4 && i % 64 <= 11; }), "rows 4 to 11 of each chunk of 64");
  EXPECT_EQ(of(130, "token", [](Index i) { return i % 64 >= 4 && i % 64 <= 11 && i != 70; }), "");
  EXPECT_EQ(of(100, "token", [](Index i) { return i % 64 >= 4 && i % 64 <= 11; }), "");  // a chunk is seen once
  EXPECT_EQ(of(16, "channel", [](Index i) { return i % 4 == 0; }), "channels with period 4: 0, 4, 8, ...");
  EXPECT_EQ(of(20, "channel", [](Index i) { return i == 3 || i == 4 || i == 11; }), "only channels 3, 4, 11");
}

}  // namespace
}  // namespace delta
