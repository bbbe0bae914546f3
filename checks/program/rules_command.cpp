// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <nlohmann/json.hpp>

#include "checks/core/families.hpp"
#include "checks/core/measure.hpp"
#include "checks/program/options.hpp"

namespace delta {
namespace {

/// The forms that can compute a rule.
std::vector<std::string> forms_of(const Rule& rule) {
  const Problem<double> p =
      draw(rule.info, families().front(), Shape{.d_k = 2, .d_v = 2, .n_h = 2, .offsets = {}}, /*seed=*/1);
  std::vector<std::string> forms = form_names();
  std::erase_if(forms, [&](const std::string& form) { return !applies(rule, form, p); });
  return forms;
}

}  // namespace

int rules_command(const RulesOptions& options) {
  auto all = nlohmann::ordered_json::array();
  for (const Rule* r : rules()) {
    const RuleInfo& i = r->info;
    const std::vector<std::string> forms = forms_of(*r);
    if (options.json) {
      all.push_back({{"id", i.id},
                     {"title", i.title},
                     {"formula", i.formula},
                     {"label", i.label},
                     {"source", i.source},
                     {"forms", forms},
                     {"gradient", r->has_gradient()}});
      continue;
    }
    std::cout << i.id << "  " << i.title << "  [" << i.label << "]  " << i.source << "\n    " << i.formula
              << "\n    forms";
    for (const std::string& form : forms) std::cout << ' ' << form;
    std::cout << (r->has_gradient() ? "; gradient" : "") << '\n';
  }
  if (options.json) std::cout << all.dump(1) << '\n';
  return 0;
}

}  // namespace delta
