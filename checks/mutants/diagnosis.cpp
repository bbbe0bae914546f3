// SPDX-License-Identifier: Apache-2.0
#include "checks/mutants/diagnosis.hpp"

#include <algorithm>
#include <cmath>

#include "checks/core/parallel_for.hpp"
#include "checks/core/ratio.hpp"
#include "checks/mutants/mutants.hpp"
#include "reference/forms/recurrent.hpp"

namespace delta {
namespace {

/// A mutant, at a chunk length if it has one.
struct Candidate {
  const Mutant* mutant;
  Index C = 0;
  Errors fit;  ///< the candidate's output against what the mutant computes, over the expected error, worst lane
  double o2 = 0, s2 = 0, o_size2 = 0, s_size2 = 0;  ///< sums of squares: distances and sizes
  bool possible = true;
};

/// What a kernel with that mistake returns for one lane; nothing if the mistake cannot be made there.
/// \param leaked  the state that the sequence before it left, if the mistake hands it on
std::optional<Output<double>> mutated(const Subject& s, const Mutant& m, Index C, Index n, Index j,
                                      const Mat<double>* leaked = nullptr) {
  Problem<double> p = s.lane<double>(n, j, m.input);
  if (leaked) p.S0 = {*leaked};
  Output<double> out{Mat<double>::Zero(p.shape.T, p.shape.d_v), Mat<double>::Zero(p.shape.d_v, p.shape.d_k)};
  bool possible = true;
  each_stream<double>(s.rule(), p, [&](Stream<double> st, Index channel) {
    possible = possible && (!m.concerns || p.shape.T == 0 || m.concerns(st));
    if (!possible) return;
    if (m.stream) m.stream(st);
    const Output<double> o = m.form ? m.form(st, C) : recurrent<double>(st);
    place(out, {m.scale(s.scale()) * o.O, o.S}, channel);
  });
  if (!possible) return std::nullopt;
  if (m.output) m.output(out);
  return out;
}

void compare(const Subject& s, Candidate& c, const Output<double>& wrong, Index n, Index j, const Errors& expected) {
  const Output<double> got = s.candidate(n, j);
  const Errors e = errors(wrong, got);
  raise(c.fit, {ratio_of(e.o, expected.o), ratio_of(e.state, expected.state)});
  c.o2 += (wrong.O - got.O).squaredNorm(), c.o_size2 += wrong.O.squaredNorm();
  if (s.has_final_state()) c.s2 += (wrong.S - got.S).squaredNorm(), c.s_size2 += wrong.S.squaredNorm();
}

/// Compares a candidate on the sequences first .. last of one head.
/// \param expected  of each lane
void compare(const Subject& s, Candidate& c, Index first, Index last, Index j, const std::vector<Errors>& expected) {
  const bool leak = c.mutant->input.segment_leak;
  if (leak && s.shape().offsets.empty()) return void(c.possible = false);
  std::optional<Output<double>> wrong;
  for (Index n = leak ? 0 : first; n <= last; ++n) {  // what leaks comes from all sequences before
    wrong = mutated(s, *c.mutant, c.C, n, j, leak && wrong ? &wrong->S : nullptr);
    if (!wrong) return void(c.possible = false);
    if (n >= first) compare(s, c, *wrong, n, j, expected[static_cast<std::size_t>(n * s.shape().HV + j)]);
  }
}

/// A kernel whose output is the right one times a constant, which is taken from the worst lane. Tried last, as any
/// mistake of the scale is one of these.
std::optional<Diagnosis> scaled_output(const Subject& s, Index worst, const Errors& right,
                                       const std::vector<Errors>& expected, int threads) {
  constexpr Index kFewest = 16;  // a constant fits the one number of a small lane, whatever was wrong
  const Index HV = s.shape().HV;
  const Mutant none{.id = "output-scaled", .what = "c o"};
  const Output<double> want = *mutated(s, none, 0, worst / HV, worst % HV), seen = s.candidate(worst / HV, worst % HV);
  const double factor = want.O.cwiseProduct(seen.O).sum() / want.O.squaredNorm();
  if (want.O.size() < kFewest || !std::isfinite(factor)) return std::nullopt;

  std::vector<Candidate> heads(static_cast<std::size_t>(HV), {&none});
  const auto fit = [&](Index n, Index j) {
    Output<double> scaled = *mutated(s, none, 0, n, j);
    scaled.O *= factor;
    compare(s, heads[static_cast<std::size_t>(j)], scaled, n, j, expected[static_cast<std::size_t>(n * HV + j)]);
  };
  const auto explains = [&](const Candidate& c) {
    return c.fit.o < kMarginal && c.fit.o < 0.7 * right.o && (!s.has_final_state() || c.fit.state < kMarginal);
  };
  fit(worst / HV, worst % HV);
  if (!explains(heads[static_cast<std::size_t>(worst % HV)])) return std::nullopt;
  parallel_for(HV, threads, [&](Index j) {
    heads[static_cast<std::size_t>(j)] = {&none};
    for (Index n = 0; n < s.shape().sequences(); ++n) fit(n, j);
  });
  double o2 = 0, size2 = 0;
  for (const Candidate& c : heads) {
    if (!explains(c)) return std::nullopt;
    o2 += c.o2, size2 += c.o_size2;
  }
  return Diagnosis{.id = std::string(none.id),
                   .explains = "o",
                   .rel_error = relative(std::sqrt(o2), std::sqrt(size2)),
                   .factor = factor};
}

}  // namespace

std::vector<Diagnosis> diagnose(const Subject& s, const std::vector<Errors>& error, const std::vector<Errors>& expected,
                                int threads) {
  Errors right;  // how well the right formula fits
  Index worst = 0;
  double badness = -1;
  for (std::size_t i = 0; i < error.size(); ++i) {
    const Errors r{ratio_of(error[i].o, expected[i].o), ratio_of(error[i].state, expected[i].state)};
    if (std::max(r.o, r.state) > badness) badness = std::max(r.o, r.state), worst = static_cast<Index>(i);
    raise(right, r);
  }
  std::vector<Candidate> all;
  for (const Mutant& m : mutants())
    for (const Index C : {16, 32, 64, 128}) {
      all.push_back({&m, m.chunked ? C : 0});
      if (!m.chunked) break;
    }
  // A fit is what rounding explains, and clearly better than that of the right formula.
  const auto fits = [](double ratio, double of_right) { return ratio < kMarginal && !(ratio > 0.7 * of_right); };
  const auto explains_o = [&](const Candidate& c) { return fits(c.fit.o, right.o); };
  const auto explains_state = [&](const Candidate& c) { return s.has_final_state() && fits(c.fit.state, right.state); };
  const auto explains_all = [&](const Candidate& c) {
    return std::max(c.fit.o, c.fit.state) < kMarginal &&
           !(std::max(c.fit.o, c.fit.state) > 0.7 * std::max(right.o, right.state));
  };
  // The worst lane first: a mistake that does not fit there need not be tried on the others.
  const Index HV = s.shape().HV, worst_n = worst / HV, worst_j = worst % HV;
  parallel_for(static_cast<Index>(all.size()), threads,
               [&](Index i) { compare(s, all[i], worst_n, worst_n, worst_j, expected); });
  std::erase_if(
      all, [&](const Candidate& c) { return !c.possible || !(explains_all(c) || explains_o(c) || explains_state(c)); });
  parallel_for(static_cast<Index>(all.size()), threads, [&](Index i) {
    all[i] = {.mutant = all[i].mutant, .C = all[i].C, .fit = {}};
    for (Index j = 0; j < HV && all[i].possible; ++j) compare(s, all[i], 0, s.shape().sequences() - 1, j, expected);
  });

  std::vector<Diagnosis> found;
  for (const bool whole : {true, false}) {
    for (const Candidate& c : all) {
      if (!c.possible) continue;
      const bool o = explains_o(c) && right.o >= kMarginal, state = explains_state(c) && right.state >= kMarginal;
      if (whole ? !explains_all(c) : !(o || state)) continue;
      const bool of_o = whole || o, of_state = s.has_final_state() && (whole || state);
      const double e2 = (of_o ? c.o2 : 0) + (of_state ? c.s2 : 0),
                   size2 = (of_o ? c.o_size2 : 0) + (of_state ? c.s_size2 : 0);
      Diagnosis d{.id = std::string(c.mutant->id),
                  .explains = of_o && of_state ? "o and final_state"
                              : of_o           ? "o"
                                               : "final_state",
                  .rel_error = relative(std::sqrt(e2), std::sqrt(size2))};
      if (c.mutant->chunked) d.chunk = c.C;
      // Chunk lengths that cannot be told apart, and variants of one mistake, share an entry.
      const auto same = std::ranges::find_if(found, [&](const Diagnosis& f) { return f.id == d.id; });
      if (same == found.end()) {
        found.push_back(d);
      } else if (same->chunk && std::abs(same->rel_error - d.rel_error) < 0.3 * d.rel_error) {
        same->chunk.reset(), same->rel_error = std::min(same->rel_error, d.rel_error);
      } else if (d.rel_error < same->rel_error) {
        *same = d;
      }
    }
    if (!found.empty()) break;
  }
  if (found.empty() && right.o >= kMarginal)
    if (const auto d = scaled_output(s, worst, right, expected, threads)) found.push_back(*d);
  std::ranges::stable_sort(found, {}, &Diagnosis::rel_error);
  return found;
}

}  // namespace delta
