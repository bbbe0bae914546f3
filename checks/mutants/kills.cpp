// SPDX-License-Identifier: Apache-2.0
#include "checks/mutants/kills.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "checks/core/equivalence.hpp"
#include "checks/core/measure.hpp"

namespace delta {
namespace {

constexpr std::string_view kRule = "q_delta", kLadderSize = "B1_T24_H2_HV4_K4_V4_packed0.5.5.16.21_C4";
/// From the narrowest on.
constexpr std::pair<std::string_view, std::string_view> kPrecisions[] = {
    {"bf16", "bf16"}, {"fp32", "fp32"}, {"double", "double"}, {"gf61", "exact"}};

void run(Selection what, const std::function<void(const Row&)>& see) {
  what.rules = {std::string(kRule)};
  check_equivalence(what, see);
}

std::string in_table(std::string s) {
  for (std::size_t at = 0; (at = s.find('|', at)) != std::string::npos; at += 2) s.insert(at, 1, '\\');
  return s;
}

}  // namespace

std::vector<Kills> kills(std::uint64_t seed) {
  std::vector<Kills> all;
  std::map<std::string, std::size_t> at;
  Selection mutants;
  mutants.seed = seed;
  for (const Mutant<double>& m : delta::mutants<double>()) {
    at[m.name()] = all.size();
    mutants.forms.push_back(m.name());
    all.push_back({.mutant = m.name(), .what = std::string(m.what), .gates = {}, .laws = {}});
    all.back().gates.resize(std::size(kGateStrengths));
  }

  Selection ladder = mutants;
  ladder.size = Size::parse(kLadderSize);
  for (const auto& [scalar, unused] : kPrecisions) ladder.scalars.emplace_back(scalar);
  for (std::size_t i = 0; i < std::size(kGateStrengths); ++i) {
    ladder.families = {std::string(kGateStrengths[i].family)};
    std::map<std::string, std::vector<std::string>> failed;  // scalars, by mutant
    run(ladder, [&](const Row& r) {
      if (r.verdict == Verdict::failed) failed[r.form].push_back(r.scalar);
    });
    for (const auto& [mutant, scalars] : failed)
      for (const auto& [scalar, name] : kPrecisions)
        if (std::ranges::find(scalars, scalar) != scalars.end()) {
          all[at[mutant]].gates[i] = name;
          break;
        }
  }

  run(mutants, [&](const Row& r) {
    if (r.verdict == Verdict::skipped || r.verdict == Verdict::untrusted) return;
    Kills& k = all[at[r.form]];
    ++k.decided;
    if (r.verdict != Verdict::failed) return;
    ++k.failed;
    if (r.of_law() && std::ranges::find(k.laws, r.law()) == k.laws.end()) k.laws.push_back(r.law());
  });
  return all;
}

std::string kills_page(const std::vector<Kills>& all) {
  std::ostringstream s;
  s << "# What kills each known mistake {#mutants}\n\n"
    << "Every known mistake is a mutant, a tiny wrong form, and runs through the checks as a form. At each strength\n"
    << "of the gate: the narrowest precision in which its result is told from the right one; *exact* where only\n"
    << "equality over a prime field does, which tries random decays as well; a dash where nothing does. *Laws* are\n"
    << "those that it breaks; the last column counts the comparisons of `./run check` for the rule `" << kRule << "`\n"
    << "that fail. A mutant that none of them kills fails the tests. `deltaref check --mutants` prints this page.\n\n"
    << "| mutant | wrong line |";
  for (const GateStrength& g : kGateStrengths) s << ' ' << g.name << " |";
  s << " laws | fail |\n|---|---|";
  for (std::size_t i = 0; i < std::size(kGateStrengths); ++i) s << "---|";
  s << "---|---|\n";
  for (const Kills& k : all) {
    s << "| `" << k.mutant << "` | " << in_table(k.what) << " |";
    for (const std::string& g : k.gates) s << ' ' << (g.empty() ? "–" : g) << " |";
    std::string laws;
    for (const std::string& law : k.laws) laws += (laws.empty() ? "" : ", ") + law;
    s << ' ' << (laws.empty() ? "–" : laws) << " | " << k.failed << " of " << k.decided << " |\n";
  }
  return s.str();
}

}  // namespace delta
