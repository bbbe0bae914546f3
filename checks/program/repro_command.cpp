// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "checks/program/options.hpp"
#include "checks/report/check_report.hpp"
#include "checks/vectors/case.hpp"

namespace delta {
namespace {

std::string outcome(const Row& r) {
  if (r.verdict == Verdict::failed) return failure_text(r, Terminal::standard_output());
  std::string s(name(r.verdict));
  s += "  " + r.rule + ' ' + r.form + ' ' + r.scalar + ' ' + r.family + ' ' + r.shape + ", against " + r.against;
  char figure[120];
  if (r.kind == "exact") {
    s += ": equal";
  } else if (r.verdict == Verdict::passed || r.verdict == Verdict::marginal) {
    std::snprintf(figure, sizeof figure, ": ratio %.3g (marginal from %g, failed from %g)", r.ratio, kMarginal,
                  kFailed);
    s += figure;
  }
  if (!r.reason.empty()) s += ": " + r.reason;
  s += '\n';
  for (const Proved& t : r.proof.outputs) {
    std::snprintf(figure, sizeof figure, "  proved: the error of %s lies between %.9e and %.9e\n", t.tensor.c_str(),
                  t.error.lower, t.error.upper);
    s += figure;
  }
  return s;
}

}  // namespace

int repro_command(const ReproOptions& o) {
  CheckOptions options{
      .selection = {.rules = {o.rule}, .forms = {o.form}, .families = {o.family}, .scalars = {o.scalar}},
      .shape = o.shape};
  options.selection.seed = o.seed, options.selection.prove = o.prove;
  if (!o.law.empty()) options.selection.laws = {o.law};
  if (o.prove) require_balls();
  std::vector<Row> rows;
  check_equivalence(selection(options), [&](const Row& r) { rows.push_back(r); });
  bool failed = rows.empty();
  if (rows.empty()) std::fputs("deltaref: there is no such case, which is a failure\n", stderr);
  for (const Row& r : rows) {
    std::fputs(outcome(r).c_str(), stdout);
    failed = failed || r.verdict == Verdict::failed;
  }
  if (!o.dump.empty() && !rows.empty()) {
    const std::string path = write_case(rows[0], o.dump);
    std::printf("  dump: %s\n  judge it: %s verify %s\n", path.c_str(), called_as().c_str(), shell_word(path).c_str());
  }
  return failed ? 1 : 0;
}

}  // namespace delta
