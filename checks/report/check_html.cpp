// SPDX-License-Identifier: Apache-2.0
// The page of `check --html`.
#include "checks/report/check_report.hpp"
#include "checks/report/sections.hpp"
#include "checks/report/svg.hpp"

namespace delta {
namespace {

Html cell(const std::map<std::string, Cell>& row, const std::string& scalar) {
  const auto found = row.find(scalar);
  if (found == row.end()) return "td"_tag(Html());
  const Cell& c = found->second;
  const std::string shown = c.text();
  std::string look = "n";
  if (c.ran) look += c.exact && !c.failed() ? " exact" : " " + heat_class(c.exact ? INFINITY : c.worst);
  if (!c.ran) look += " nothing";
  return "td"_tag("class", look)(text(shown));
}

Html cells(std::string_view caption, std::vector<Head> heads, const std::vector<Html>& rows) {
  for (const std::string& scalar : scalar_names()) heads.push_back({scalar, "n"});
  return "div"_tag("class", "cells")(table(caption, heads, rows));
}

Html equivalence(const CheckSummary& s) {
  std::vector<Html> rows;
  std::string last;
  for (const Rule* rule : rules())
    for (const std::string& form : form_names()) {
      const std::string id(rule->info.id);
      const auto row = s.table.find({id, form});
      if (row == s.table.end()) continue;
      Html line = "th"_tag("scope", "row")(text(id == last ? "" : id)) + "td"_tag(text(form));
      for (const std::string& scalar : scalar_names()) line += cell(row->second, scalar);
      rows.push_back(line);
      last = id;
    }
  if (rows.empty()) return {};
  return "p"_tag(
             "Each form of each rule against the formula as its paper prints it. "_html, "b"_tag("="_html),
             " is equality, exact, on every input. A number is the worst error over the one that correct code makes "
             "in that precision: marginal from 1.5, failed from 2."_html) +
         cells("rules and forms against scalars", {{"rule"}, {"form"}}, rows);
}

Html by_family(const CheckSummary& s) {
  std::vector<Html> rows;
  for (const Family& f : families()) {
    const auto row = s.families.find(std::string(f.name));
    if (row == s.families.end()) continue;
    Html line = "th"_tag("scope", "row")("class", "family")(text(f.name), "br"_tag(), "small"_tag(text(f.why)));
    for (const std::string& scalar : scalar_names()) line += cell(row->second, scalar);
    rows.push_back(line);
  }
  if (rows.empty()) return {};
  return "p"_tag("The worst of all rules and forms on each family of inputs."_html) +
         cells("families of inputs against scalars", {{"family"}}, rows);
}

/// Families by the strength of their gates; on each rung the worst of those named.
Html gate_ladder(const CheckSummary& s) {
  struct Rung {
    const char* name;
    std::vector<std::string> families;
  };
  static const std::vector<Rung> rungs{{"none", {"gate_one"}},
                                       {"weak", {"gate_weak"}},
                                       {"typical", {"gate_half"}},
                                       {"strong", {"gate_strong", "gate_floor", "decay_underflow"}},
                                       {"resets", {"alpha_zero", "gate_keep_or_clear"}}};
  Plot p{.caption = {"ladder", "Ratio against the strength of the gates.",
                     "The worst of all rules and forms. None: α is 1. Weak: 1 % a token. Typical: a chunk keeps 60 %. "
                     "Strong: a chunk keeps nothing that a narrow format can hold. Resets: α is 0."},
         .x_name = "gates",
         .y_name = "error / expected",
         .x_ticks = {},
         .series = {},
         .thresholds = true,
         .dots = true};
  for (const char* scalar : {"double", "fp32", "tf32", "fp16", "bf16"}) {
    Series line{scalar, {}};
    for (std::size_t i = 0; i < rungs.size(); ++i) {
      double worst = -1;
      for (const std::string& family : rungs[i].families)
        if (const auto f = s.families.find(family); f != s.families.end())
          if (const auto c = f->second.find(scalar); c != f->second.end() && c->second.ran)
            worst = std::max(worst, c->second.worst);
      if (worst >= 0)
        line.points.emplace_back((static_cast<double>(i) + 0.5) / static_cast<double>(rungs.size()), worst);
    }
    if (line.points.size() > 1) p.series.push_back(line);
  }
  if (p.series.empty()) return {};
  for (std::size_t i = 0; i < rungs.size(); ++i)
    p.x_ticks.emplace_back((static_cast<double>(i) + 0.5) / static_cast<double>(rungs.size()), rungs[i].name);
  return draw(p);
}

Html law_rows(const CheckSummary& s) {
  std::vector<Html> rows;
  for (const Law& law : laws()) {
    const auto found = s.laws.find(std::string(law.name));
    if (found == s.laws.end()) continue;
    const Cell& c = found->second;
    const int failed = c.failed() ? c.count.at(Verdict::failed) : 0;
    rows.push_back("th"_tag("scope", "row")(text(law.name)) + "td"_tag("class", "wrap")(text(law.statement)) +
                   "td"_tag("class", "n")(text(std::to_string(c.total() - failed) + "/" + std::to_string(c.total()))) +
                   "td"_tag("class", "n")(text(c.text())));
  }
  if (rows.empty()) return {};
  return "p"_tag("Properties that need no reference, and so cannot share its mistake."_html) +
         table("laws", {{"law"}, {"says"}, {"holds", "n"}, {"worst", "n"}}, rows);
}

Html failures(const CheckSummary& s) {
  Html out;
  for (const Row& r : s.failures)
    out += "div"_tag("class", "mistake")(
        "strong"_tag(text(r.rule + " · " + r.form + " · " + r.scalar + " · " + r.family)),
        "p"_tag(text((r.kind == "ratio" ? "ratio " + figure(r.ratio) + ": " : std::string()) + r.against + ", " +
                     r.reason)),
        r.where.empty() ? Html() : "p"_tag("small"_tag(text(r.where))), "pre"_tag(text(reproducer(r))));
  return out;
}

Html left_out(const CheckSummary& s) {
  std::vector<Html> rows;
  for (const auto& [reason, n] : s.skipped)
    rows.push_back("td"_tag("class", "n")(text(std::to_string(n))) + "td"_tag("class", "wrap")(text(reason)));
  return rows.empty() ? Html() : table("cases that were not judged", {{"cases", "n"}, {"reason"}}, rows);
}

Html ratios(const CheckSummary& s) {
  Html out;
  for (const Ratio& r : kRatios)
    out += fact(r.id, "code"_tag(text(r.formula)) + "br"_tag() + "small"_tag(text(r.meaning)));
  if (s.chance > 0)
    out += fact("over gf61", "a wrong formula passes one case by chance below "_html + text(figure(s.chance, "%.0e")) +
                                 ", its degree over 2"_html + "sup"_tag("61"_html));
  return "dl"_tag(out);
}

}  // namespace

std::string check_html(const CheckSummary& s, const Environment& where, const std::string& command) {
  Html counts;
  for (const auto& [verdict, n] : s.count)
    counts += "span"_tag(badge(name(verdict)), text(" " + std::to_string(n))) + " "_html;
  const std::string_view verdict = s.passed() ? "passed" : "failed";
  return page("deltaref check: " + std::string(verdict),
              "header"_tag(
                  "div"_tag("class", "title")("h1"_tag("Equivalence of rules, forms and scalars"_html), badge(verdict)),
                  "p"_tag("class", "counts")(counts, "small"_tag(text("in " + figure(s.seconds, "%.1f") + " s")))) +
                  section("Failures", failures(s)) + section("Gate ladder", gate_ladder(s)) +
                  section("Rules and forms", equivalence(s)) + section("Ratio by family", by_family(s)) +
                  section("Laws", law_rows(s)) + section("Not judged", left_out(s)) + section("Ratios", ratios(s)) +
                  about(where, command));
}

}  // namespace delta
