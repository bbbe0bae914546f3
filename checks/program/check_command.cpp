// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "checks/mutants/kills.hpp"
#include "checks/mutants/mutants.hpp"
#include "checks/program/options.hpp"
#include "checks/report/check_report.hpp"
#include "checks/vectors/case.hpp"

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

std::string pad(std::string s, std::size_t width, bool left = false) {
  if (s.size() < width) s.insert(left ? s.size() : 0, width - s.size(), ' ');
  return s;
}

/// Numbers that are not finite have no form in JSON: they become null.
Json to_json(const Row& r) {
  Json j{
      {"rule", r.rule},   {"form", r.form}, {"against", r.against}, {"scalar", r.scalar},         {"family", r.family},
      {"shape", r.shape}, {"kind", r.kind}, {"ratio", r.ratio},     {"verdict", name(r.verdict)}, {"seed", r.seed}};
  if (!r.reason.empty()) j["reason"] = r.reason;
  if (!r.where.empty()) j["where"] = r.where;
  if (r.verdict == Verdict::failed) j["repro"] = reproducer(r);
  if (r.of_proof() && r.verdict != Verdict::untrusted) {
    for (const Proved& t : r.proof.outputs)
      j["proof"][t.tensor] = {{"lower", t.error.lower}, {"upper", t.error.upper}, {"bound", r.bound_of(t.tensor)}};
    j["proof"]["bits"] = r.proof.bits;
  }
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
  for (const Mutant<double>& m : mutants<double>()) add(m.name(), m.what);
  end("mutants");
  for (const Ratio& r : kRatios) add(r.id, std::string(r.formula) + "  " + std::string(r.meaning));
  end("ratios");
  if (json) std::cout << all.dump(1) << '\n';
}

/// The command as it was given, without what it wrote.
std::string command(const CheckOptions& o) {
  std::string s = called_as() + " check";
  auto add = [&](const char* name, const std::vector<std::string>& values) {
    for (const std::string& value : values) s += std::string(" ") + name + " " + value;
  };
  add("--rule", o.selection.rules), add("--form", o.selection.forms), add("--family", o.selection.families);
  add("--scalar", o.selection.scalars), add("--law", o.selection.laws);
  if (!o.shape.empty()) s += " --shape " + o.shape;
  return s +
         (o.selection.quick  ? " --quick"
          : o.selection.full ? " --full"
                             : "") +
         (o.selection.prove ? " --prove" : "") + " --seed " + std::to_string(o.selection.seed);
}

}  // namespace

Selection selection(const CheckOptions& options) {
  Selection what = options.selection;
  for (std::string& r : what.rules)
    if (const Rule* rule = find_rule(r)) r = rule->info.id;
  require_known(what.rules, rule_names(), "rule");
  std::vector<std::string> forms = form_names();  // a mutant is run as a form, if it is named
  for (const Mutant<double>& m : mutants<double>())
    if (std::ranges::find(what.forms, m.name()) != what.forms.end()) forms.push_back(m.name());
  require_known(what.forms, forms, "form");
  require_known(what.families, names_of(families()), "family");
  require_known(what.scalars, scalar_names(), "scalar");
  require_known(what.laws, names_of(laws()), "law");
  if (!options.shape.empty()) try {
      what.size = Size::parse(options.shape);
    } catch (const std::invalid_argument& e) {
      throw UsageError(e.what());
    }
  for (const std::string& form : what.forms)
    if (const std::string why = what.size ? too_large(form, *what.size) : ""; !why.empty()) throw UsageError(why);
  return what;
}

int check_command(const CheckOptions& options) {
  if (options.list) return list(options.json), 0;
  if (options.mutants) {
    const std::vector<Kills> all = kills(options.selection.seed);
    std::cout << kills_page(all);
    return std::ranges::all_of(all, [](const Kills& k) { return k.failed > 0; }) ? 0 : 1;
  }
  const Selection what = selection(options);
  if (what.prove) require_balls();
  if (!options.html.empty()) require_writable(options.html);

  const auto start = std::chrono::steady_clock::now();
  auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const Terminal terminal = Terminal::standard_output();
  CheckSummary summary;
  Json rows = Json::array();
  int failures = 0;
  bool line = false;  // a progress line stands on the terminal
  const bool tty = isatty(STDERR_FILENO);
  auto clear = [&] {
    if (std::exchange(line, false)) std::fputs("\r\033[K", stderr);
  };
  check_equivalence(
      what,
      [&](const Row& r) {
        summary.add(r);
        if (options.json) rows.push_back(to_json(r));
        if (r.verdict != Verdict::failed || ++failures > 20) return;
        const std::string dump = options.dump.empty() ? "" : write_case(r, options.dump);
        if (options.json) return;
        clear();
        std::cout << failure_text(r, terminal);
        if (!dump.empty()) std::cout << "  dump         " << dump << '\n';  // in one line, to be copied
      },
      [&](std::size_t done, std::size_t all) {
        if (!tty || seconds() < 2) return;
        std::fprintf(stderr, "\r%zu of %zu cases, %.0f s", done, all, seconds());
        line = true;
      });
  clear();
  summary.seconds = seconds();

  if (options.json) {
    Json counts;
    for (Verdict v : {Verdict::passed, Verdict::marginal, Verdict::failed, Verdict::untrusted, Verdict::skipped})
      counts[std::string(name(v))] = summary.counted(v);
    std::cout << Json{{"summary", counts}, {"rows", rows}}.dump(1) << '\n';
  } else {
    if (failures > 20) std::cout << "and " << failures - 20 << " more failures\n";
    std::cout << check_text(summary, terminal);
  }
  if (!options.html.empty()) write_file(options.html, check_html(summary, environment(), command(options)));
  if (!summary.ran()) std::cerr << "deltaref: no case was run, which is a failure\n";
  return summary.passed() ? 0 : 1;
}

}  // namespace delta
