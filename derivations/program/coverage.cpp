// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "derivations/core/runs.hpp"
#include "options.hpp"

namespace delta {
namespace {

using Json = nlohmann::ordered_json;

/// A row of the table: an id and the kinds of claim it needs.
struct Formula {
  std::string id, kinds;
};

std::vector<Formula> formulas() {
  std::vector<Formula> all;
  std::istringstream table{std::string(coverage_table())};
  for (std::string line; std::getline(table, line);) {
    const std::size_t blank = line.find(' ');
    if (!line.starts_with("#") && blank != line.npos)
      all.push_back({line.substr(0, blank), line.substr(blank + 1)});
  }
  return all;
}

}  // namespace

int coverage(const DeriveOptions& o) {
  std::map<std::string, std::set<std::string>> where,
      kinds;  // id -> derivations, id -> kinds claimed
  std::vector<std::string> problems;
  for (const Entry& e : derivations()) {
    std::map<std::string, std::set<std::string_view>> scalars;  // of each identity
    for (const Run& r : runs_of(e, o.setup))
      for (const Claim& c : r.record.claims) {
        where[c.id].insert(std::string(e.name));
        kinds[c.id].insert(std::string(name(c.kind)));
        const std::string place = std::string(e.name) + ".cpp:" + std::to_string(c.line) + ": " +
                                  c.id + " " + c.statement;
        if (!c.holds) problems.push_back(place + ": fails over " + std::string(r.field));
        if (why_one_scalar(c.kind).empty()) scalars[place].insert(r.scalar);
      }
    for (const auto& [place, over] : scalars)
      if (over.size() < 2) problems.push_back(place + ": an identity over one scalar only");
  }
  Json rows = Json::array();
  int missing = 0;
  for (const Formula& f : formulas()) {
    std::string lacking;
    std::istringstream wanted(f.kinds);
    for (std::string kind; wanted >> kind;)
      if (!kinds[f.id].contains(kind)) lacking += (lacking.empty() ? "" : " ") + kind;
    missing += !lacking.empty();
    if (o.json) {
      rows.push_back(
          {{"id", f.id}, {"kinds", f.kinds}, {"derivations", where[f.id]}, {"missing", lacking}});
      continue;
    }
    std::string places;
    for (const std::string& p : where[f.id]) places += (places.empty() ? "" : ", ") + p;
    std::cout << f.id << std::string(18 - std::min<std::size_t>(17, f.id.size()), ' ') << f.kinds
              << std::string(14 - std::min<std::size_t>(13, f.kinds.size()), ' ')
              << (places.empty() ? "nowhere" : places)
              << (lacking.empty() ? "" : "   MISSING " + lacking) << '\n';
  }
  if (o.json)
    std::cout << Json{{"formulas", rows}, {"missing", missing}}.dump(1) << '\n';
  else
    std::cout << '\n'
              << (missing ? std::to_string(missing) + " formulas lack a claim"
                          : "every formula is claimed")
              << '\n';
  for (const std::string& p : problems) std::cerr << "deltaref-derive: " << p << '\n';
  return problems.empty() && missing == 0 ? 0 : 1;
}

}  // namespace delta
