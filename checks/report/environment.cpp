// SPDX-License-Identifier: Apache-2.0
#include "checks/report/environment.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "checks/core/parallel_for.hpp"
#include "commit.hpp"  // made at each build

namespace delta {
namespace {

/// The name of the processor as Linux has it; elsewhere it is not known.
std::string cpu() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "unknown";
}

std::string now() {
  const std::time_t t = std::time(nullptr);
  std::tm utc{};
  char s[40] = "";
  if (gmtime_r(&t, &utc)) std::strftime(s, sizeof s, "%Y-%m-%d %H:%M UTC", &utc);
  return s;
}

}  // namespace

Environment environment() {
  return {.version = DELTAREF_VERSION,
          .commit = kCommit,
          .compiler = DELTAREF_COMPILER,
          .cpu = cpu(),
          .threads = cores(),
          .date = now()};
}

std::string called_as() {
  const char* s = std::getenv("DELTAREF_CALLED_AS");
  return s && *s ? s : "deltaref";
}

std::string shell_word(const std::string& s) {
  const bool plain = !s.empty() && std::ranges::all_of(s, [](unsigned char c) {
    return std::isalnum(c) || std::string_view("._/+=,@%:-").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return s;
  std::string quoted = "'";
  for (const char c : s) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace delta
