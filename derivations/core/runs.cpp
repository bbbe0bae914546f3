// SPDX-License-Identifier: Apache-2.0
#include "runs.hpp"

#include <algorithm>
#include <utility>

namespace delta {
namespace {

Record over_rationals(const Entry& entry, const Setup& setup) {
  Record record;
  Derivation<Rational> d(setup, record);
  entry.over_rationals(d);
  return record;
}

/// The first seed from the setup's on that tells the forms apart, and its record.
std::pair<Setup, Record> told_apart(const Entry& entry, const Setup& setup) {
  const auto accident = [](const Claim& c) { return c.holds || c.kind == Kind::NE; };
  const Record first = over_rationals(entry, setup);
  Record record = first;
  Setup next = setup;
  for (int attempt = 0; attempt < 20 && !record.all_hold(); ++attempt) {
    if (!std::ranges::all_of(record.claims, accident)) break;
    next.seed += std::uint64_t{1} << 32;
    record = over_rationals(entry, next);
  }
  return record.all_hold() ? std::pair{next, record} : std::pair{setup, first};
}

}  // namespace

Setup telling_seed(const Entry& entry, const Setup& setup) {
  return told_apart(entry, setup).first;
}

std::vector<Run> runs_of(const Entry& entry, const Setup& setup) {
  std::vector<Run> runs;
  if (setup.scalar != "gf61")
    runs.push_back({"rational", "the rationals", told_apart(entry, setup).second});
  if (entry.over_field && setup.scalar != "rational") {
    Run& r = runs.emplace_back("gf61", "GF(2^61 - 1)");
    Derivation<Generic> d(setup, r.record);
    entry.over_field(d);
  }
  return runs;
}

}  // namespace delta
