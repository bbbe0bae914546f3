// SPDX-License-Identifier: Apache-2.0
#include "checks/gpu/judges.hpp"

namespace delta::gpu {

Row judged(Row row, double error, double allowed) {
  if (!(allowed < kIllPosed)) {
    row.verdict = Verdict::untrusted, row.ratio = NAN, row.reason = "ill-posed in this precision";
  } else {
    row.ratio = ratio_of(error, allowed);
    row.verdict = judge(row.ratio);
  }
  return row;
}

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

}  // namespace delta::gpu
