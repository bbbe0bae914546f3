// SPDX-License-Identifier: Apache-2.0
#include "checks/gpu/judges.hpp"

namespace delta::gpu {

void judge_outputs(const Case& c, Model& model, const Call& call, const Report& report) {
  const Answer got = run_on_device(c.rule.info, c.given, call);
  Row row = c.row(call, "o, state");
  const auto without_trust = [&](const std::string& why) {
    row.verdict = Verdict::untrusted, row.ratio = NAN, row.reason = why;
    report(row);
  };
  if (!got.untouched) {
    row.verdict = Verdict::failed, row.ratio = INFINITY, row.reason = "wrote outside its outputs";
    return report(row);
  }
  if (const std::string why = model.outside(got.plan, call.dtype); !why.empty()) return without_trust(why);
  const Expected e = model.outputs(got.plan, call.dtype);
  if (!(std::max(e.o, e.state) < kIllPosed)) return without_trust("ill-posed in this precision");
  const Comparison x = compare(c.exact, got.result, e);
  row.ratio = x.ratio, row.verdict = x.verdict, row.reason = x.reason;
  if (x.verdict == Verdict::failed && x.distance.worst) {
    const Place& w = *x.distance.worst;
    row.reason += ": " + std::string(w.tensor) + "[" + std::to_string(w.row) + "," + std::to_string(w.column) +
                  "] of lane " + std::to_string(w.lane) + ", want " + std::to_string(w.want) + ", got " +
                  std::to_string(w.got);
  }
  report(row);
}

void judge_beside_v5(const Case& c, Model& model, const Call& call, const Report& report) {
  Call uncut = call;
  uncut.version = DELTAREF_V5, uncut.segments = 0;
  const Answer v5 = run_on_device(c.rule.info, c.given, uncut), v6 = run_on_device(c.rule.info, c.given, call);
  Row row = c.row(call, "o, state beside v5");
  if (call.segments == 2) {
    const bool same = v5.bits == v6.bits;
    row.verdict = same ? Verdict::passed : Verdict::failed, row.ratio = same ? 0 : INFINITY;
    if (!same) row.reason = "not the same bits";
    return report(row);
  }
  if (!model.outside(v6.plan, call.dtype).empty()) return;
  const Distance d = distance(v5.result, v6.result);
  const Expected a = model.outputs(v5.plan, call.dtype), b = model.outputs(v6.plan, call.dtype);
  const Row o = judged(row, d.o, a.o + b.o), state = judged(row, d.state, a.state + b.state);
  report(o.ratio > state.ratio ? o : state);
}

}  // namespace delta::gpu
