// SPDX-License-Identifier: Apache-2.0
// What `verify` prints.
#include "checks/report/analysis_report.hpp"
#include "checks/report/verify_report.hpp"
#include "checks/verify/prove.hpp"

namespace delta {
namespace {

TextTable figures(const FileVerdict& v) {
  TextTable t{
      .columns = {{"tensor", false}, {"ratio"}, {"error"}, {"expected"}, {"Frobenius"}}, .rows = {}, .indent = 2};
  for (const Judged& j : v.outputs)
    t.rows.push_back({j.tensor, figure(j.ratio, "%.3g"), figure(j.error, "%.2e"), figure(j.expected, "%.2e"),
                      figure(j.rel_error, "%.2e")});
  return t;
}

}  // namespace

std::string_view verdict_word(const FileVerdict& v) { return v.unreadable ? "unreadable" : name(v.verdict); }

std::string place_text(const BadPlace& p) {
  auto part = [](const char* name, Index n) { return name + std::to_string(n); };
  if (p.tensor.ends_with("_state"))
    return part("sequence ", p.b) + part("  head ", p.head) + part("  value channel ", p.t) +
           part("  key channel ", p.channel);
  return part("b ", p.b) + part("  t ", p.t) + part("  head ", p.head) + part("  channel ", p.channel);
}

std::string mistake_text(const Diagnosis& d) {
  return d.id + (d.factor ? " by " + figure(*d.factor, "%.4g") : "") +
         (d.factor_is.empty() ? "" : " = " + d.factor_is) +
         (d.chunk ? " at chunks of " + std::to_string(*d.chunk) : "");
}

std::string verify_text(const FileVerdict& v, const Terminal& terminal) {
  const std::string word(verdict_word(v)), gap(word.size() + 2, ' ');
  auto headline = [&](const std::string& says) {  // the colour takes no column
    return terminal.verdict(word) + terminal.item(gap, says).substr(word.size());
  };
  if (v.unreadable) return headline(v.reason);
  std::string s = headline(printable(v.file) + "  (" + v.rule + ")") + terminal.item("  ", v.reason);
  for (const std::string& h : v.hints) s += terminal.field("hint", printable(h));
  s += figures(v).text(terminal.width);
  auto place = [&](const char* label, const BadPlace& p) {
    s += terminal.field(
        label, p.tensor + "  " + place_text(p) + "  want " + figure(p.want, "%.7g") + "  got " + figure(p.got, "%.7g"));
  };
  if (v.first_bad) place("first bad", *v.first_bad);
  if (v.worst && v.verdict != Verdict::passed) place("worst", *v.worst);
  for (const Diagnosis& d : v.diagnosis) {
    std::string lines;
    for (const std::string& line : d.what) lines += (lines.empty() ? ": " : " and ") + line;
    s += terminal.field("looks like",
                        mistake_text(d) + lines + "  explains " + d.explains + " to " + figure(d.rel_error, "%.1e"));
  }
  if (v.diagnosis.empty() && v.verdict == Verdict::failed)
    s += terminal.field("looks like", "unknown: no known mistake reproduces it");
  for (const Pattern& p : v.patterns) s += terminal.field("where", p.tensor + ": " + p.text);
  if (v.grade) s += terminal.field("grade", *v.grade + ": " + v.grade_reason);
  for (const Dominant& d : v.dominant)
    s += terminal.field(
        "dominant", d.intermediate + ", " + figure(100 * d.share, "%.0f") + " % of the square error of " + d.tensor);
  s += terminal.field("expected", "from " + v.model);
  std::string judge = v.judge.how;
  for (const Judged& j : v.outputs)
    judge += (&j == v.outputs.data() ? "; differs by " : ", ") + figure(j.reference, "%.1e") + " (" + j.tensor + ")";
  s += terminal.field("judge", judge + " from " + v.judge.against);
  if (v.proof)
    for (const std::string& line : proof_lines(*v.proof)) s += terminal.field("proved", line);
  for (const std::string& n : v.notes) s += terminal.field("note", printable(n));
  if (v.analysis) s += analysis_text(*v.analysis, terminal);
  return s;
}

std::string verify_summary(const std::vector<FileVerdict>& all, const Terminal& terminal) {
  TextTable t{.columns = {{"file", false}, {"verdict", false}, {"rule", false}, {"ratio"}, {"looks like", false}},
              .rows = {},
              .flexible = 0};
  for (const FileVerdict& v : all)
    t.rows.push_back({printable(v.file), std::string(verdict_word(v)), v.rule,
                      v.unreadable ? "" : figure(v.ratio(), "%.3g"),
                      v.diagnosis.empty() ? "" : mistake_text(v.diagnosis[0])});
  return t.text(terminal.width);
}

}  // namespace delta
