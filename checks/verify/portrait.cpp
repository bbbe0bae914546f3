// SPDX-License-Identifier: Apache-2.0
#include "checks/verify/portrait.hpp"

#include <cmath>
#include <sstream>

namespace delta {
namespace {

std::string short_text(double x) {
  std::ostringstream s;
  s.precision(6);
  s << x;
  return s.str();
}

/// -ln of the smallest alpha of a token: 0 without gates, infinite for a reset.
double strength(const Problem<double>& lane, Index t) {
  return lane.alpha.empty() ? 0 : -std::log(lane.alpha.row(0, t, 0).minCoeff());
}

std::vector<Rung> gate_ladder(const Subject& s, const std::vector<Measured>& measured) {
  if (s.rule().info.forget == Forget::no) return {};
  constexpr double ends[] = {0, 0.03, 0.3, 10, INFINITY};  // the strongest gate of each rung
  std::vector<Rung> rungs{
      {"none", "0"}, {"weak", "to 0.03"}, {"typical", "to 0.3"}, {"strong", "to 10"}, {"resets", "above"}};
  for (const Measured& m : measured) {
    if (m.tensor != "o" || !m.well_posed) continue;
    const Problem<double> lane = s.lane<double>(m.n, m.head);
    for (Index t = 0; t < m.rows.size(); ++t) {
      std::size_t i = 0;
      for (const double g = strength(lane, t); g > ends[i];) ++i;
      ++rungs[i].tokens;
      rungs[i].ratio = std::max(rungs[i].ratio, ratio_of(m.rows[t], m.expected));
    }
  }
  return rungs;
}

std::vector<std::pair<std::string, std::string>> facts(const Dump& dump, const Subject& s) {
  const Shape& z = s.shape();
  auto part = [](const char* name, Index n) { return name + std::to_string(n); };
  std::string sizes = part("B ", z.B) + part(", T ", z.T) + part(", H ", z.H) + part(", HV ", z.HV) +
                      part(", d_k ", z.d_k) + part(", d_v ", z.d_v);
  if (!z.offsets.empty()) sizes += ", packed, " + part("", z.sequences()) + " sequences";
  std::vector<std::pair<std::string, std::string>> out{{"sizes", sizes}};
  out.emplace_back("scale", short_text(s.scale()));
  std::string types;
  for (const auto& [name, tensor] : dump.tensors)
    if (!is_integer(tensor.dtype))
      types += (types.empty() ? "" : ", ") + name + " " + std::string(delta::name(tensor.dtype));
  out.emplace_back("stored as", types);
  if (s.has_final_state() || dump.find("initial_state"))
    out.emplace_back("states", s.stored_kv() ? "[d_k, d_v]" : "[d_v, d_k]");
  return out;
}

}  // namespace

Portrait portrait(const Dump& dump, const Subject& subject, const std::vector<Measured>& measured) {
  return {.facts = facts(dump, subject),
          .metadata = {dump.metadata.begin(), dump.metadata.end()},
          .gates = gate_ladder(subject, measured)};
}

}  // namespace delta
