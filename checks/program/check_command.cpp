// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

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

/// The names of a list of things that have one.
template <class List> std::vector<std::string> names_of(const List& list) {
  std::vector<std::string> names;
  for (const auto& x : list) names.emplace_back(x.name);
  return names;
}

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const Rule* r : rules()) names.emplace_back(r->info.id);
  return names;
}

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

Selection selection(const CheckOptions& options) {
  Selection what = options.selection;
  for (std::string& r : what.rules)
    if (const Rule* rule = find_rule(r)) r = rule->info.id;
  require_known(what.rules, rule_names(), "rule");
  require_known(what.forms, form_names(), "form");
  require_known(what.families, names_of(families()), "family");
  require_known(what.scalars, scalar_names(), "scalar");
  require_known(what.laws, names_of(laws()), "law");
  if (!options.shape.empty()) try {
      what.size = Size::parse(options.shape);
    } catch (const std::invalid_argument& e) {
      throw UsageError(e.what());
    }
  return what;
}

std::string pad(std::string s, std::size_t width, bool left = false) {
  if (s.size() < width) s.insert(left ? s.size() : 0, width - s.size(), ' ');
  return s;
}

/// All rows of one place of the table.
struct Cell {
  std::map<Verdict, int> count;
  double worst = 0;
  bool exact = false, ran = false;
  std::string family;  ///< of the worst ratio

  void add(const Row& r) {
    ++count[r.verdict];
    if (r.verdict == Verdict::skipped || r.verdict == Verdict::untrusted) return;
    exact = r.kind == "exact" && (exact || !ran);
    ran = true;
    if (r.verdict == Verdict::failed ? !(r.ratio <= worst) : r.ratio > worst) worst = r.ratio, family = r.family;
  }
  std::string text() const {
    if (!ran) return count.contains(Verdict::untrusted) ? "?" : "-";
    const bool failed = count.contains(Verdict::failed);
    if (exact && worst == 0) return "=";
    if (exact && failed) return "NOT =";
    char s[16];
    std::snprintf(s, sizeof s, failed ? "%.3g!" : "%.2f", worst);
    return s;
  }
};

/// rules x forms down, scalars across, and the family that made the worst ratio of the row.
class Table {
 public:
  void add(const Row& r) {
    cells_[{r.rule, r.form}][r.scalar].add(r);
    if (r.kind == "ratio") worst_[{r.rule, r.form}].add(r);
  }
  void print(std::ostream& out) const {
    out << pad("rule", 20, true) << pad("form", 10, true);
    for (const std::string& s : scalar_names()) out << pad(s, s == "rational" ? 9 : 7);
    out << "  worst on\n";
    std::string last;
    for (const std::string& rule : rule_names())
      for (const std::string& form : form_names()) {
        const auto row = cells_.find({rule, form});
        if (row == cells_.end()) continue;
        out << pad(rule == last ? "" : rule, 20, true) << pad(form, 10, true);
        for (const std::string& s : scalar_names()) {
          const auto cell = row->second.find(s);
          out << pad(cell == row->second.end() ? "" : cell->second.text(), s == "rational" ? 9 : 7);
        }
        const auto worst = worst_.find({rule, form});
        out << "  " << (worst == worst_.end() ? "" : worst->second.family) << '\n';
        last = rule;
      }
  }

 private:
  std::map<std::pair<std::string, std::string>, std::map<std::string, Cell>> cells_;
  std::map<std::pair<std::string, std::string>, Cell> worst_;
};

/// The laws, one a line.
class LawTable {
 public:
  void add(const Row& r) { cells_[r.law()].add(r); }
  void print(std::ostream& out) const {
    if (cells_.empty()) return;
    out << "\nlaws, which need no reference" << pad("holds", 66) << pad("worst", 9) << '\n';
    for (const Law& law : laws()) {
      const auto found = cells_.find(std::string(law.name));
      if (found == cells_.end()) continue;
      const Cell& cell = found->second;
      int all = 0;
      for (const auto& [verdict, n] : cell.count) all += n;
      const int failed = cell.count.contains(Verdict::failed) ? cell.count.at(Verdict::failed) : 0;
      out << pad(std::string(law.name), 13, true) << pad(std::string(law.statement), 72, true)
          << pad(std::to_string(all - failed) + "/" + std::to_string(all), 10) << pad(cell.text(), 9) << '\n';
    }
  }

 private:
  std::map<std::string, Cell> cells_;
};

std::string reproducer(const Row& r) {
  std::string s = "./run check --rule " + r.rule + " --form " + r.form + " --family " + r.family + " --shape " +
                  r.shape + " --scalar " + r.scalar + " --seed " + std::to_string(r.seed);
  return r.of_law() ? s + " --law " + r.law() : s;
}

void print_failure(const Row& r) {
  std::printf("FAIL  %s %s %s %s %s  ", r.rule.c_str(), r.form.c_str(), r.scalar.c_str(), r.family.c_str(),
              r.shape.c_str());
  if (r.kind == "ratio") std::printf("ratio %.3g > %g  ", r.ratio, kFailed);
  std::printf("%s%s\n", r.of_law() ? (r.against + ", ").c_str() : "", r.reason.c_str());
  if (!r.where.empty()) std::printf("  %s\n", r.where.c_str());
  std::printf("  repro: %s\n", reproducer(r).c_str());
}

/// Numbers that are not finite have no form in JSON: they become null.
Json to_json(const Row& r) {
  Json j{
      {"rule", r.rule},   {"form", r.form}, {"against", r.against}, {"scalar", r.scalar},         {"family", r.family},
      {"shape", r.shape}, {"kind", r.kind}, {"ratio", r.ratio},     {"verdict", name(r.verdict)}, {"seed", r.seed}};
  if (!r.reason.empty()) j["reason"] = r.reason;
  if (!r.where.empty()) j["where"] = r.where;
  if (r.verdict == Verdict::failed) j["repro"] = reproducer(r);
  return j;
}

void list(bool json) {
  Json all;
  auto section = [&](const char* title, const auto& rows) {
    if (!json) std::cout << title << '\n';
    Json entries = Json::array();
    std::size_t width = 0;
    for (const auto& row : rows) width = std::max(width, row.first.size());
    for (const auto& [id, text] : rows) {
      if (!json) std::cout << "  " << pad(std::string(id), width + 2, true) << text << '\n';
      entries.push_back({{"name", id}, {"what", text}});
    }
    all[title] = std::move(entries);
  };
  using Lines = std::vector<std::pair<std::string, std::string>>;
  Lines lines;
  auto add = [&](std::string_view id, std::string_view text) { lines.emplace_back(id, text); };
  auto end = [&](const char* title) { section(title, std::exchange(lines, {})); };
  for (const Rule* r : rules()) add(r->info.id, r->info.title);
  end("rules");
  for (const std::string& f : form_names()) add(f, "");
  end("forms");
  for (const std::string& s : scalar_names()) add(s, "");
  end("scalars");
  for (const Family& f : families()) add(f.name, f.why);
  end("families");
  add(kBaseSize, "every rule and family");
  add(kQuickSize, "every rule and family with --quick");
  add(kRealSize, "every rule over gf61: the size of a kernel's chunk");
  for (const SweepRow& s : sweep()) add(s.size, s.why);
  end("shapes");
  for (const Law& l : laws()) add(l.name, l.statement);
  end("laws");
  for (const Ratio& r : kRatios) add(r.id, std::string(r.formula) + "  " + std::string(r.meaning));
  end("ratios");
  if (json) std::cout << all.dump(1) << '\n';
}

}  // namespace

int check_command(const CheckOptions& options) {
  if (options.list) return list(options.json), 0;
  const Selection what = selection(options);

  const auto start = std::chrono::steady_clock::now();
  auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::map<Verdict, int> count;
  std::map<std::string, int> skipped;
  Table table;
  LawTable law_table;
  Json rows = Json::array();
  double chance = 0;
  int failures = 0;
  bool line = false;  // a progress line stands on the terminal
  const bool tty = isatty(STDERR_FILENO);
  auto clear = [&] {
    if (std::exchange(line, false)) std::fputs("\r\033[K", stderr);
  };
  check_equivalence(
      what,
      [&](const Row& r) {
        ++count[r.verdict];
        if (r.verdict == Verdict::skipped || r.verdict == Verdict::untrusted) ++skipped[r.reason];
        if (r.scalar == "gf61" && r.verdict == Verdict::passed)
          chance = std::max(chance, schwartz_zippel(Size::parse(r.shape)));
        r.of_law() ? law_table.add(r) : table.add(r);
        if (options.json) rows.push_back(to_json(r));
        if (options.json || r.verdict != Verdict::failed) return;
        clear();
        if (++failures <= 20) print_failure(r);
      },
      [&](std::size_t done, std::size_t all) {
        if (!tty || seconds() < 2) return;
        std::fprintf(stderr, "\r%zu of %zu cases, %.0f s", done, all, seconds());
        line = true;
      });
  clear();

  if (options.json) {
    Json summary;
    for (Verdict v : {Verdict::passed, Verdict::marginal, Verdict::failed, Verdict::untrusted, Verdict::skipped})
      summary[std::string(name(v))] = count[v];
    std::cout << Json{{"summary", summary}, {"rows", rows}}.dump(1) << '\n';
  } else {
    if (failures > 20) std::printf("and %d more failures\n", failures - 20);
    std::fflush(stdout);
    table.print(std::cout);
    law_table.print(std::cout);
    std::cout << "\n=  equal to the printed formula, exactly, on every input";
    if (chance > 0) {
      char s[120];
      std::snprintf(s, sizeof s,
                    ";\n   over gf61 a wrong formula passes one case by chance below %.0e (its degree / 2^61)", chance);
      std::cout << s;
    }
    std::cout << "\n   a number: the worst error over what correct code makes in that precision, marginal from "
              << kMarginal << ", failed from " << kFailed << '\n';
    for (const Ratio& r : kRatios) std::cout << "   " << r.id << " = " << r.formula << ", " << r.meaning << '\n';
    std::cout << "-  does not apply   ?  every case is ill-posed in that precision\n";
    for (const auto& [reason, n] : skipped) std::cout << "   " << pad(std::to_string(n), 6) << "  " << reason << '\n';
    std::cout << '\n';
    for (Verdict v : {Verdict::passed, Verdict::marginal, Verdict::failed, Verdict::untrusted, Verdict::skipped})
      std::cout << count[v] << ' ' << name(v) << (v == Verdict::skipped ? "" : ", ");
    std::printf("   (%.1f s)\n", seconds());
  }
  const bool ran = count[Verdict::passed] + count[Verdict::marginal] > 0;
  if (!ran && count[Verdict::failed] == 0) std::cerr << "deltaref: no case was run, which is a failure\n";
  return ran && count[Verdict::failed] == 0 ? 0 : 1;
}

}  // namespace delta
