// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "checks/program/options.hpp"

namespace delta {
namespace {

using Json = nlohmann::ordered_json;

/// Refuses a name that is not in the list, and says what is.
void require_known(const std::vector<std::string>& names, const std::vector<std::string>& known,
                   const std::string& what) {
  for (const std::string& n : names)
    if (std::ranges::find(known, n) == known.end()) {
      std::string all;
      for (const std::string& k : known) all += (all.empty() ? "" : ", ") + k;
      throw UsageError("unknown " + what + " '" + n + "'; expected one of " + all);
    }
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& f : families()) names.emplace_back(f.name);
  return names;
}

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const Rule* r : rules()) names.emplace_back(r->info.id);
  return names;
}

/// One cell of the printed table: all rows of a rule, a form and a scalar.
struct Cell {
  int cases = 0;
  double worst = 0;
  bool exact = false;
  Verdict verdict = Verdict::skipped;

  void add(const Row& r) {
    if (r.verdict == Verdict::skipped || r.verdict == Verdict::untrusted) return;
    ++cases;
    exact = r.kind == "exact";
    worst = std::max(worst, r.ratio);
    if (verdict == Verdict::skipped || r.verdict > verdict) verdict = r.verdict;
  }
  std::string text() const {
    if (cases == 0) return "-";
    if (exact) return verdict == Verdict::passed ? "=" : "NOT =";
    char s[16];
    std::snprintf(s, sizeof s, verdict == Verdict::failed ? "%.3g!" : "%.2f", worst);
    return s;
  }
};

class Table {
 public:
  void add(const Row& r) { cells_[{r.rule, r.form}][r.scalar].add(r); }
  void print(std::ostream& out) const {
    auto pad = [](std::string s, std::size_t n, bool left = false) {
      if (s.size() < n) s.insert(left ? s.size() : 0, n - s.size(), ' ');
      return s;
    };
    out << pad("rule", 20, true) << pad("form", 11, true);
    for (const std::string& s : scalar_names()) out << pad(s, 9);
    out << '\n';
    std::string last;
    for (const std::string& rule : rule_names())
      for (const std::string& form : form_names()) {
        const auto row = cells_.find({rule, form});
        if (row == cells_.end()) continue;
        out << pad(rule == last ? "" : rule, 20, true) << pad(form, 11, true);
        for (const std::string& s : scalar_names()) {
          const auto cell = row->second.find(s);
          out << pad(cell == row->second.end() ? "" : cell->second.text(), 9);
        }
        out << '\n';
        last = rule;
      }
  }

 private:
  std::map<std::pair<std::string, std::string>, std::map<std::string, Cell>> cells_;
};

Json to_json(const Row& r) {
  Json j{
      {"rule", r.rule},   {"form", r.form}, {"against", r.against}, {"scalar", r.scalar},         {"family", r.family},
      {"shape", r.shape}, {"kind", r.kind}, {"ratio", r.ratio},     {"verdict", name(r.verdict)}, {"seed", r.seed}};
  if (!r.reason.empty()) j["reason"] = r.reason;
  return j;
}

}  // namespace

int check_command(const CheckOptions& options) {
  Selection what = options.selection;
  for (std::string& r : what.rules)
    if (const Rule* rule = find_rule(r)) r = rule->info.id;
  require_known(what.rules, rule_names(), "rule");
  require_known(what.forms, form_names(), "form");
  require_known(what.families, family_names(), "family");
  require_known(what.scalars, scalar_names(), "scalar");

  const auto start = std::chrono::steady_clock::now();
  std::map<Verdict, int> count;
  Table table;
  Json rows = Json::array();
  check_equivalence(what, [&](const Row& r) {
    ++count[r.verdict];
    table.add(r);
    if (options.json)
      rows.push_back(to_json(r));
    else if (r.verdict == Verdict::failed)
      std::cout << "FAIL  " << r.rule << ' ' << r.form << ' ' << r.scalar << ' ' << r.family << ' ' << r.shape << "  "
                << r.reason << '\n';
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  Json summary;
  for (Verdict v : {Verdict::passed, Verdict::marginal, Verdict::failed, Verdict::untrusted, Verdict::skipped})
    summary[std::string(name(v))] = count[v];
  if (options.json) {
    std::cout << Json{{"summary", summary}, {"rows", rows}}.dump(1) << '\n';
  } else {
    table.print(std::cout);
    std::printf(
        "\n=  equal to the printed formula, exactly, on every input.  A number: worst error over what correct code "
        "makes\n"
        "   in that precision (marginal from %g, failed from %g).  -  the form does not apply.\n\n",
        kMarginal, kFailed);
    for (auto& [verdict, n] : summary.items()) std::cout << n << ' ' << verdict << (verdict == "skipped" ? "" : ", ");
    std::printf("   (%.1f s)\n", seconds);
  }
  const bool ran = count[Verdict::passed] + count[Verdict::marginal] > 0;  // no case run is a failure
  return ran && count[Verdict::failed] == 0 ? 0 : 1;
}

}  // namespace delta
