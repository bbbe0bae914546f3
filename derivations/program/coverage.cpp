// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "options.hpp"
#include "runs.hpp"

namespace delta {
namespace {

/// A row of the formula table.
struct Formula {
  std::string id, kinds, statement;
};

std::vector<Formula> formulas() {
  std::vector<Formula> all;
  std::istringstream table{std::string(formula_table())};
  for (std::string line; std::getline(table, line);) {
    if (!line.starts_with("| F") && !line.starts_with("| E") && !line.starts_with("| D"))
      continue;
    std::vector<std::string> cells(1);
    for (std::size_t i = 2; i < line.size(); ++i)
      if (line[i] == '\\' && line[i + 1] == '|')
        cells.back() += line[++i];
      else if (line[i] == '|')
        cells.emplace_back();
      else
        cells.back() += line[i];
    for (std::string& c : cells)
      c = c.substr(std::min(c.find_first_not_of(' '), c.size())),
      c.resize(c.find_last_not_of(' ') + 1);
    all.push_back({cells[0], cells[1], cells[2]});
  }
  return all;
}

}  // namespace

int coverage(const DeriveOptions& o) {
  std::map<std::string, std::set<std::string>> where,
      kinds;  // id -> derivations, id -> kinds claimed
  bool good = true;
  for (const Entry& e : derivations())
    for (const Run& r : run(e, o.setup))
      for (const Claim& c : r.record.claims) {
        where[c.id].insert(std::string(e.name));
        kinds[c.id].insert(std::string(name(c.kind)));
        good = good && c.holds;
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
      rows.push_back({{"id", f.id},
                      {"kinds", f.kinds},
                      {"statement", f.statement},
                      {"derivations", where[f.id]},
                      {"missing", lacking}});
      continue;
    }
    std::string places;
    for (const std::string& p : where[f.id]) places += (places.empty() ? "" : ", ") + p;
    std::cout << f.id << std::string(6 - std::min<std::size_t>(5, f.id.size()), ' ') << f.kinds
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
  return good && missing == 0 ? 0 : 1;
}

}  // namespace delta
