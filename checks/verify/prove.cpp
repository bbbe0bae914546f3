// SPDX-License-Identifier: Apache-2.0
#include "checks/verify/prove.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace delta {
namespace {

/// The lane of a place: a head of a sequence.
Index lane_of(const Shape& z, const BadPlace& at) {
  const bool of_state = at.tensor == "final_state" || at.tensor == "d_initial_state";
  Index n = at.b;
  if (!of_state && !z.offsets.empty())
    for (n = 0; n + 1 < z.sequences() && at.t >= z.end(n);) ++n;
  return n * z.HV + at.head;
}

/// Seven digits, rounded outwards, so that what is printed holds as well.
std::string bounds_text(const Bounds& b) {
  char s[80];
  std::snprintf(s, sizeof s, "%.6e and %.6e", b.lower * (1 - 1e-6), b.upper * (1 + 1e-6));
  return s;
}

/// "3 of 64 heads"
std::string part(Index n, Index all, const std::string& what) {
  return (n == all ? "all " : std::to_string(n) + " of ") + std::to_string(all) + " " + what;
}

}  // namespace

void prove_errors(FileVerdict& v, const DumpOptions& options, int threads) {
  if (v.unreadable) return;
  const Dump dump = read_dump(v.file, has_meaning);
  const Subject s(dump, options);
  if (s.lanes() == 0) return;
  const std::optional<BadPlace>& at = v.worst ? v.worst : v.first_bad;
  const Index first = at ? std::min(lane_of(s.shape(), *at), s.lanes() - 1) : 0;
  v.proof = prove(s, first, threads);
  for (const Judged& t : v.outputs) {
    const Proved* p = v.proof->find(t.tensor);
    if (!p || !v.proof->whole() || !v.proof->sharp) continue;
    // The verdict measures by a reference that is itself a little off.
    const double slack = 4 * t.reference + 1e-6 * t.error;
    if (!(t.error > p->error.upper + slack) && !(s.lanes() == 1 && t.error < p->error.lower - slack)) continue;
    v.verdict = Verdict::untrusted;
    v.reason =
        "the reference is wrong: the error of " + t.tensor + " is proved to lie between " + bounds_text(p->error);
  }
}

std::vector<std::string> proof_lines(const Proof& proof) {
  std::vector<std::string> lines;
  for (const Proved& p : proof.outputs)
    lines.push_back("the error of " + p.tensor + " lies between " + bounds_text(p.error) + "; " +
                    part(p.rounded, p.elements, "elements are the exact numbers, rounded"));
  std::string how =
      "in balls of " + std::to_string(proof.bits) + " bits: " + part(proof.lanes, proof.of_lanes, "heads of sequences");
  if (!proof.whole()) how += ", the worst first";
  if (proof.tokens < proof.of_tokens)
    how += ", the first " + part(proof.tokens, proof.of_tokens, "tokens of each and no state");
  if (!proof.whole()) how += "; all of it would take too long";
  if (!proof.sharp) how += "; no number of bits made the bounds narrow";
  lines.push_back(how);
  return lines;
}

}  // namespace delta
