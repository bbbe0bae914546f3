// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <nlohmann/json.hpp>

#include "checks/core/registry.hpp"
#include "checks/program/options.hpp"

namespace delta {

int rules_command(const RulesOptions& options) {
  auto all = nlohmann::ordered_json::array();
  for (const Rule* r : rules()) {
    const RuleInfo& i = r->info;
    if (options.json)
      all.push_back(
          {{"id", i.id}, {"title", i.title}, {"formula", i.formula}, {"label", i.label}, {"source", i.source}});
    else
      std::cout << i.id << "  " << i.title << "  [" << i.label << "]  " << i.source << "\n    " << i.formula << "\n";
  }
  if (options.json) std::cout << all.dump(1) << '\n';
  return 0;
}

}  // namespace delta
