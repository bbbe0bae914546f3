// SPDX-License-Identifier: Apache-2.0
#include "checks/report/sections.hpp"

namespace delta {

Html badge(std::string_view verdict) {
  const char* mark = verdict == "passed"      ? "✓ "
                     : verdict == "marginal"  ? "≈ "
                     : verdict == "untrusted" ? "? "
                     : verdict == "skipped"   ? "– "
                                              : "✕ ";
  return "span"_tag("class", "verdict " + std::string(verdict))(text(mark + std::string(verdict)));
}

Html section(std::string_view heading, const Html& content) {
  return content.empty() ? content : "section"_tag("h3"_tag(text(heading)), content);
}

Html fact(std::string_view what, const Html& value) {
  return value.empty() ? value : "dt"_tag(text(what)) + "dd"_tag(value);
}

Html about(const Environment& e, const std::string& command) {
  return section("Made by", "dl"_tag(fact("program", text("deltaref " + e.version)), fact("commit", text(e.commit)),
                                     fact("compiler", text(e.compiler)), fact("processor", text(e.cpu)),
                                     fact("threads", text(std::to_string(e.threads))), fact("date", text(e.date)),
                                     fact("again with", "code"_tag(text(command)))));
}

}  // namespace delta
