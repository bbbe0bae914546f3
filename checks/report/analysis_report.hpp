// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "checks/report/html.hpp"
#include "checks/report/terminal.hpp"
#include "checks/verify/analyse.hpp"

namespace delta {

// What `verify --analyse` adds to the reports of a verdict.

/// The worst heads as a table, and what its columns are.
std::string analysis_text(const Analysis&, const Terminal&);
/// Every head. What is not finite is null.
nlohmann::ordered_json analysis_json(const Analysis&);
/// A table of heads, and the course of the worst one. \param id  unique on the page
Html analysis_html(const Analysis&, const std::string& id);

}  // namespace delta
