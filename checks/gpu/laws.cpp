// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "checks/gpu/judges.hpp"
#include "gpu/schedule/split.hpp"

namespace delta::gpu {
namespace {

template <class F> void each_token_tensor(Problem<double>& p, F use) {
  for (Tensor<double>* x : {&p.q, &p.k, &p.v, &p.alpha, &p.beta, &p.lambda})
    if (!x->empty()) use(*x);
}

/// Tokens begin .. begin + length - 1 of a problem with one batch entry. The initial states are kept.
Problem<double> part(const Problem<double>& whole, Index begin, Index length) {
  Problem<double> p = whole;
  p.shape.T = length, p.shape.offsets.clear();
  each_token_tensor(p, [&](Tensor<double>& x) {
    const Index size = x.heads * x.rows * x.cols;
    const auto from = x.data.begin() + begin * size;
    x.data = std::vector<double>(from, from + length * size);
    x.tokens = length;
  });
  return p;
}

class Laws {
 public:
  Laws(const Case& c, const Call& call, const Report& report)
      : case_(c), call_(call), report_(report), once_(run_on_device(c.rule.info, c.given, call_)) {}

  /// Another way to hand over the same problem changes no bit.
  template <class F> void same_as(const std::string& law, F change) const {
    Call other = call_;
    change(other);
    expect(law, run_on_device(case_.rule.info, case_.given, other).bits == once_.bits);
  }

  /// What is appended changes no bit of what came before. Where sequences are cut, it moves the cuts: then no bit of
  /// the first segment. \pre not packed, B = 1
  void prefixes() const {
    const Index all = case_.shape().T;
    for (const Index T : {all / 3, all - 1, std::min<Index>(64, all)}) {
      const Index C = once_.plan.chunk, n = (T + C - 1) / C;
      const Index same = once_.plan.segments > 1 ? C * cuts(n, once_.plan.segments)[1] : T;
      if (same < 1) continue;
      const Answer a = run_on_device(case_.rule.info, part(case_.given, 0, T), call_);
      bool equal = true;
      for (std::size_t lane = 0; lane < a.result.size(); ++lane)
        equal = equal && a.result[lane].O.topRows(same) == once_.result[lane].O.topRows(same);
      expect("prefix of " + std::to_string(T), equal);
    }
  }

  /// A packed sequence gives the bits it gives alone.
  void sequences_alone() const {
    const Shape& z = case_.shape();
    for (Index n = 0; n < z.sequences(); ++n) {
      if (z.length(n) == 0) continue;
      Problem<double> one = part(case_.given, z.begin(n), z.length(n));
      if (!one.S0.empty()) one.S0 = {case_.given.S0.begin() + n * z.HV, case_.given.S0.begin() + (n + 1) * z.HV};
      const Answer a = run_on_device(case_.rule.info, one, call_);
      bool equal = true;
      for (Index h = 0; h < z.HV; ++h) {
        const auto& packed = once_.result[static_cast<std::size_t>(n * z.HV + h)];
        const auto& alone = a.result[static_cast<std::size_t>(h)];
        equal = equal && packed.O == alone.O && packed.S == alone.S;
      }
      expect("sequence " + std::to_string(n) + " alone", equal);
    }
  }

  /// What is no decay, NaN or a number below 0, is passed on: that head's o from its token on, and its final state, are
  /// NaN. Other heads, and the chunks before, keep their bits.
  void broken_decay(const std::string& law, double alpha, bool log_gate) const {
    const Shape& z = case_.shape();
    Index n = z.sequences() - 1;
    while (n >= 0 && z.length(n) == 0) --n;
    if (n < 0) return;
    const Index h = z.HV - 1, t = z.length(n) / 2, C = once_.plan.chunk;
    Call call = call_;
    call.log_gate = log_gate;
    Problem<double> p = case_.given;
    const Answer sound = run_on_device(case_.rule.info, p, call);
    *p.alpha.at(z.batch(n), z.begin(n) + t, h) = alpha;
    const Answer broken = run_on_device(case_.rule.info, p, call);
    bool right = true;
    for (std::size_t lane = 0; lane < broken.result.size(); ++lane) {
      const auto &got = broken.result[lane], &whole = sound.result[lane];
      if (lane != static_cast<std::size_t>(n * z.HV + h))
        right = right && got.O == whole.O && got.S == whole.S;
      else
        right = right && got.O.topRows(t / C * C) == whole.O.topRows(t / C * C) &&
                got.O.bottomRows(z.length(n) - t).array().isNaN().all() && got.S.array().isNaN().all();
    }
    expect(law, right);
  }

 private:
  void expect(const std::string& law, bool equal) const {
    Row row = case_.row(call_, law);
    row.verdict = equal ? Verdict::passed : Verdict::failed;
    row.ratio = equal ? 0 : INFINITY;
    if (!equal) row.reason = "not the bits that the law asks for";
    report_(row);
  }

  const Case& case_;
  const Call call_;
  const Report& report_;
  const Answer once_;
};

}  // namespace

void judge_laws(const Case& c, const Call& call, const Report& report) {
  const Laws laws(c, call, report);
  laws.same_as("repeat", [](Call&) {});
  laws.same_as("what memory held before", [](Call& x) { x.fill = 0x3a; });
  laws.same_as("layout of the state", [](Call& x) { x.layout = DELTAREF_STATE_KV; });
  laws.same_as("strides", [](Call& x) { x.padded = true; });
  const auto may_own = [&, d_v = c.shape().d_v](std::int32_t rows) {  // of S, a block of that version; v7 has no choice
    if (call.version == DELTAREF_V4) return rows < 128;
    return (call.version == DELTAREF_V5 || call.version == DELTAREF_V6) && 64 <= rows && rows <= d_v;
  };
  for (const std::int32_t rows : {16, 32, 64, 128})
    if (may_own(rows)) laws.same_as(std::to_string(rows) + " rows a block", [&](Call& x) { x.rows = rows; });
  if (!c.given.alpha.empty()) {
    for (const bool log_gate : {false, true})
      laws.broken_decay(log_gate ? "NaN for a log decay" : "NaN for a decay", NAN, log_gate);
    if (call.version >= DELTAREF_V4) laws.broken_decay("a decay below 0", -0.5, false);  // they take its logarithm
  }
  if (!c.shape().offsets.empty())
    laws.sequences_alone();
  else if (c.shape().B == 1)
    laws.prefixes();
}

}  // namespace delta::gpu
