// SPDX-License-Identifier: Apache-2.0
#include "checks/report/check_report.hpp"

#include <cstdio>
#include <iterator>

namespace delta {

// ---------------------------------------------------------------- what is kept

void Cell::add(const Row& r) {
  ++count[r.verdict];
  if (r.verdict == Verdict::skipped || r.verdict == Verdict::untrusted) return;
  exact = r.kind == "exact" && (exact || !ran);
  ran = true;
  if (r.verdict == Verdict::failed ? !(r.ratio <= worst) : r.ratio > worst) worst = r.ratio, family = r.family;
}

int Cell::total() const {
  int all = 0;
  for (const auto& [verdict, n] : count) all += n;
  return all;
}

std::string Cell::text() const {
  if (!ran) return count.contains(Verdict::untrusted) ? "?" : "-";
  if (exact && worst == 0) return "=";
  if (exact && failed()) return "NOT =";
  char s[16];
  std::snprintf(s, sizeof s, failed() ? "%.3g!" : "%.2f", worst);
  return s;
}

void RuleProof::add(const Row& r) {
  if (r.verdict == Verdict::untrusted) return;
  cases += 1, certified += r.verdict != Verdict::failed;
  for (const Proved& t : r.proof.outputs)
    if (const double x = ratio_of(t.error.upper, r.bound_of(t.tensor)); !(x <= ratio))
      ratio = x, error = t.error, bound = r.bound_of(t.tensor), family = r.family;
}

void CheckSummary::add(const Row& r) {
  ++count[r.verdict];
  if (r.verdict == Verdict::skipped || r.verdict == Verdict::untrusted) ++skipped[r.reason];
  if (r.verdict == Verdict::failed && failures.size() < 50) failures.push_back(r);
  if (r.of_law()) return laws[r.law()].add(r);
  if (r.of_proof()) return proofs[r.rule].add(r);
  if (r.scalar == "gf61" && r.verdict == Verdict::passed)
    chance = std::max(chance, schwartz_zippel(Size::parse(r.shape)));
  table[{r.rule, r.form}][r.scalar].add(r);
  families[r.family][r.scalar].add(r);
}

bool CheckSummary::ran() const {
  return counted(Verdict::passed) + counted(Verdict::marginal) + counted(Verdict::failed) > 0;
}

bool CheckSummary::passed() const { return ran() && counted(Verdict::failed) == 0; }

std::string reproducer(const Row& r) {
  std::string s = called_as() + " repro --rule " + r.rule + " --form " + r.form + " --family " + r.family +
                  " --shape " + r.shape + " --scalar " + r.scalar + " --seed " + std::to_string(r.seed);
  return r.of_law() ? s + " --law " + r.law() : r.of_proof() ? s + " --prove" : s;
}

// ---------------------------------------------------------------- for a terminal

namespace {

/// rules x forms down, scalars across, and the family that made the worst ratio of the row.
TextTable equivalence_table(const CheckSummary& s) {
  TextTable t{.columns = {{"rule", false}, {"form", false}}, .keys = 2};
  for (const std::string& scalar : scalar_names()) t.columns.push_back({scalar});
  t.columns.push_back({"worst on", false});
  for (const Rule* rule : rules())
    for (const std::string& form : form_names()) {
      const auto row = s.table.find({std::string(rule->info.id), form});
      if (row == s.table.end()) continue;
      std::vector<std::string> cells{std::string(rule->info.id), form};
      const Cell* worst = nullptr;
      for (const std::string& scalar : scalar_names()) {
        const auto cell = row->second.find(scalar);
        const bool has = cell != row->second.end();
        cells.push_back(has ? cell->second.text() : "");
        if (has && !cell->second.exact && !cell->second.family.empty() &&
            (!worst || !(cell->second.worst <= worst->worst)))
          worst = &cell->second;
      }
      cells.push_back(worst ? worst->family : "");
      t.rows.push_back(std::move(cells));
    }
  return t;
}

/// The laws, one a line.
TextTable law_table(const CheckSummary& s) {
  TextTable t{.columns = {{"law", false}, {"which needs no reference", false}, {"holds"}, {"worst"}}, .flexible = 1};
  for (const Law& law : laws()) {
    const auto found = s.laws.find(std::string(law.name));
    if (found == s.laws.end()) continue;
    const Cell& cell = found->second;
    const int failed = cell.failed() ? cell.count.at(Verdict::failed) : 0;
    t.rows.push_back({std::string(law.name), std::string(law.statement),
                      std::to_string(cell.total() - failed) + "/" + std::to_string(cell.total()), cell.text()});
  }
  return t;
}

/// What is proved of the double reference, one rule a line.
TextTable proof_table(const CheckSummary& s) {
  TextTable t{.columns = {{"double against balls", false},
                          {"certified"},
                          {"error proved below"},
                          {"bound E u"},
                          {"error / bound"},
                          {"worst on", false}}};
  auto figure = [](const char* format, double x) {
    char text[40];
    std::snprintf(text, sizeof text, format, x);
    return std::string(text);
  };
  for (const auto& [rule, c] : s.proofs)
    t.rows.push_back({rule, std::to_string(c.certified) + "/" + std::to_string(c.cases),
                      figure("%.4e", c.error.upper * (1 + 1e-4)), figure("%.2e", c.bound), figure("%.3f", c.ratio),
                      c.family});
  return t;
}

}  // namespace

std::string failure_text(const Row& r, const Terminal& terminal) {
  std::string s;
  for (const std::string& part : {r.rule, r.form, r.scalar, r.family, r.shape}) s += (s.empty() ? "" : " ") + part;
  char ratio[40] = "";
  if (r.kind != "exact") std::snprintf(ratio, sizeof ratio, "ratio %.3g > %g  ", r.ratio, kFailed);
  s += std::string("  ") + ratio + (r.of_law() ? r.against + ", " : "") + r.reason;
  std::string out = terminal.verdict("failed") + terminal.item("        ", s).substr(6);
  if (!r.where.empty()) out += terminal.field("where", r.where);
  const std::string repro = reproducer(r);
  return out + Terminal{.width = repro.size() + 100}.field("repro", repro);  // in one line, to be copied
}

std::string check_text(const CheckSummary& s, const Terminal& terminal) {
  std::string out = equivalence_table(s).text(terminal.width);
  if (!s.laws.empty()) out += (s.table.empty() ? "" : "\n") + law_table(s).text(terminal.width);
  if (!s.proofs.empty()) out += "\n" + proof_table(s).text(terminal.width);
  auto legend = [&](const std::string& begin, const std::string& says) { out += terminal.item(begin, says); };
  out += '\n';
  legend("=  ", "equal to the printed formula, exactly, on every input");
  char number[120];
  if (s.chance > 0) {
    std::snprintf(number, sizeof number,
                  "over gf61 a wrong formula passes one case by chance below %.0e (its degree / 2^61)", s.chance);
    legend("   ", number);
  }
  std::snprintf(
      number, sizeof number,
      "a number: the worst error over what correct code makes in that precision, marginal from %g, failed from %g",
      kMarginal, kFailed);
  legend("   ", number);
  for (const Ratio& r : kRatios)
    legend("   ", std::string(r.id) + " = " + std::string(r.formula) + ", " + std::string(r.meaning));
  if (!s.proofs.empty())
    legend("   ", "certified: the recurrence in double lies within the bound of the exact result, which balls enclose");
  legend("-  ", "does not apply");
  legend("?  ", "every case is ill-posed in that precision");
  for (const auto& [reason, n] : s.skipped) {
    std::snprintf(number, sizeof number, "   %6d  ", n);
    legend(number, reason);
  }
  out += '\n';
  std::string counts;
  for (Verdict v : {Verdict::passed, Verdict::marginal, Verdict::failed, Verdict::untrusted, Verdict::skipped}) {
    counts += (counts.empty() ? "" : ", ") + std::to_string(s.counted(v)) + ' ' + std::string(name(v));
  }
  std::snprintf(number, sizeof number, "   (%.1f s)", s.seconds);
  return out + terminal.wrapped(counts + number) + '\n';
}

}  // namespace delta
