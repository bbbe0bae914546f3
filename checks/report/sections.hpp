// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "checks/report/environment.hpp"
#include "checks/report/html.hpp"
#include "reference/core/rule.hpp"

namespace delta {

// What the pages of `verify` and of `check` have in common.

/// A verdict as a badge: a mark, the word, a colour.
Html badge(std::string_view verdict);

/// A section with a heading, or nothing if it has no content.
Html section(std::string_view heading, const Html& content);

/// A line of a list of facts; nothing if the value is empty.
Html fact(std::string_view what, const Html& value);

/// Where the report was made, and the command that makes it again.
Html about(const Environment& e, const std::string& command);

}  // namespace delta
