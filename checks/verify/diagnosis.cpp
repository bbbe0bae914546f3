// SPDX-License-Identifier: Apache-2.0
#include "checks/verify/diagnosis.hpp"

#include <algorithm>
#include <cmath>

#include "checks/core/parallel_for.hpp"
#include "checks/core/ratio.hpp"
#include "checks/mutants/mutants.hpp"
#include "reference/forms/recurrent.hpp"

namespace delta {
namespace {

/// Mistakes that may have been made, at a chunk length if one of them has one. None: the right formula.
struct Suspect {
  std::vector<const Mutant<double>*> mistakes;
  Index C = 0;
  double factor = 1;  ///< of a scaled output

  Errors fit;  ///< the kernel's output against what the mistakes make, over the expected error, worst lane so far
  double o2 = 0, s2 = 0, o_size2 = 0, s_size2 = 0;  ///< sums of squares: distances and sizes

  bool has(auto member) const {
    return std::ranges::any_of(mistakes, [&](const Mutant<double>* m) { return bool(m->*member); });
  }
  bool leaks() const { return input().segment_leak; }
  InputFault input() const {
    InputFault all;
    for (const Mutant<double>* m : mistakes) all = all | m->input;
    return all;
  }
  std::string id() const {
    std::string s;
    for (const Mutant<double>* m : mistakes) s += (s.empty() ? "" : " + ") + std::string(m->id);
    return s;
  }
};

/// The suspicions that come of some mistakes: one, or one for each chunk length.
void suspect(std::vector<Suspect>& list, const std::vector<const Mutant<double>*>& mistakes) {
  const Suspect x{mistakes};
  for (const Index C : {16, 32, 64, 128}) {
    list.push_back(x);
    if (!x.has(&Mutant<double>::chunked)) return;
    list.back().C = C;
  }
}

/// What a kernel with these mistakes returns for a lane; nothing if they cannot be made there.
/// \param p  the lane as that kernel takes it
std::optional<Output<double>> wrong_output(const Subject& s, const Suspect& x, const Problem<double>& p) {
  Output<double> out{Mat<double>::Zero(p.shape.T, p.shape.d_v), Mat<double>::Zero(p.shape.d_v, p.shape.d_k)};
  double scale = s.scale() * x.factor;
  for (const Mutant<double>* m : x.mistakes)
    if (m->scale && !m->fitted) scale = m->scale(s.scale()) * x.factor;
  bool possible = true;
  each_stream<double>(s.rule(), p, [&](Stream<double> st, Index channel) {
    Output<double> (*form)(const Stream<double>&, Index) = nullptr;
    for (const Mutant<double>* m : x.mistakes) {
      possible = possible && (!m->concerns || m->concerns(st));
      if (!possible) return;
      if (m->stream) m->stream(st);
      if (m->form) form = m->form;
    }
    const Output<double> o = form ? form(st, x.C) : recurrent<double>(st);
    place(out, {scale * o.O, o.S}, channel);
  });
  if (!possible) return std::nullopt;
  for (const Mutant<double>* m : x.mistakes)
    if (m->output) m->output(out);
  return out;
}

/// The constant that brings what the mistakes make closest to the output.
double fitted_factor(const Mat<double>& want, const Mat<double>& got) {
  return want.cwiseProduct(got).sum() / want.squaredNorm();
}

/// Only the first tokens of a lane.
Problem<double> first_tokens(Problem<double> p, Index n) {
  const auto cut = [&](Tensor<double>& x) {
    if (!x.empty()) x.tokens = n, x.data.resize(static_cast<std::size_t>(n * x.rows * x.cols));
  };
  for (Tensor<double>* x : {&p.q, &p.k, &p.v, &p.beta, &p.alpha, &p.lambda}) cut(*x);
  for (Tensor<double>& x : p.inputs) cut(x);
  p.shape.T = n;
  return p;
}

/// The start of a lane.
struct Start {
  std::vector<std::pair<InputFault, Problem<double>>> taken;  ///< as kernels take them that make some mistakes
  Mat<double> got;                                            ///< [tokens x d_v] what the kernel returned there
  double allowed = 0;                                         ///< error of a row that rounding explains

  const Problem<double>& as(const InputFault& fault) const {
    return std::ranges::find(taken, fault, &std::pair<InputFault, Problem<double>>::first)->second;
  }
};

class Inquiry {
 public:
  Inquiry(const Subject& s, const std::vector<Errors>& error, const std::vector<Errors>& expected, int threads)
      : s_(s), expected_(expected), threads_(threads) {
    double badness = -1;
    for (std::size_t i = 0; i < error.size(); ++i) {
      const Errors r{ratio_of(error[i].o, expected[i].o), ratio_of(error[i].state, expected[i].state)};
      if (std::max(r.o, r.state) > badness) badness = std::max(r.o, r.state), worst_ = static_cast<Index>(i);
      raise(right_, r);
    }
  }

  std::vector<Diagnosis> run() {
    std::vector<const Mutant<double>*> known, fitted;
    for (const Mutant<double>& m : mutants<double>()) (m.fitted ? fitted : known).push_back(&m);
    // Whatever has a constant to choose is tried last, as any mistake of the scale is one of these.
    std::vector<Suspect> one = suspects({}, known);
    search(one);
    if (std::vector<Diagnosis> all = entries(one, true); !all.empty()) return all;
    std::vector<Suspect> scaled = suspects({}, fitted);
    if (right_.o >= kMarginal) {
      search(scaled);
      if (std::vector<Diagnosis> all = entries(scaled, true); !all.empty()) return all;
    }
    Index rows = 0;  // of o and of the states: too few witnesses, and no pair can be beyond doubt
    for (Index n = 0; n < s_.shape().sequences(); ++n) rows += 2 * s_.shape().HV * s_.shape().length(n);
    if (rows < kWitnesses) return entries(one, false);
    std::vector<const Mutant<double>*> interface = known;
    std::erase_if(interface, [](const Mutant<double>* m) { return m->part != Part::interface; });
    for (const auto& firsts : {interface, fitted}) {
      std::vector<Suspect> pairs = suspects(firsts, known);
      search(pairs);
      std::erase_if(pairs, [&](const Suspect& x) { return !beyond_doubt(x); });
      if (std::vector<Diagnosis> all = entries(pairs, true); !all.empty()) return all;
    }
    return entries(one, false);
  }

 private:
  // ---- who is suspected

  /// Each of the second ones, or each pair of a first and a second one.
  static std::vector<Suspect> suspects(const std::vector<const Mutant<double>*>& firsts,
                                       const std::vector<const Mutant<double>*>& seconds) {
    std::vector<Suspect> list;
    if (firsts.empty())
      for (const Mutant<double>* m : seconds) suspect(list, {m});
    for (const Mutant<double>* a : firsts)
      for (const Mutant<double>* b : seconds)
        if (b->part == Part::update || a < b || a->fitted)  // two of the interface in one order only
          if (a != b) suspect(list, {a, b});
    return list;
  }

  // ---- what a fit is

  /// What rounding explains, and clearly better than the right formula does.
  static bool fits(double ratio, double of_right) { return ratio < kMarginal && !(ratio > 0.7 * of_right); }
  bool explains_o(const Suspect& x) const { return right_.o >= kMarginal && fits(x.fit.o, right_.o); }
  bool explains_state(const Suspect& x) const {
    return s_.has_final_state() && right_.state >= kMarginal && fits(x.fit.state, right_.state);
  }
  bool explains_all(const Suspect& x) const {
    return fits(std::max(x.fit.o, x.fit.state), std::max(right_.o, right_.state));
  }
  bool explains(const Suspect& x) const {
    const bool part = x.mistakes.size() == 1 && !x.has(&Mutant<double>::fitted);
    return explains_all(x) || (part && (explains_o(x) || explains_state(x)));
  }

  // ---- the search: the start of the worst lane, the worst lane, all lanes

  /// Leaves those that explain the output, or a part of it.
  void search(std::vector<Suspect>& list) {
    const Index HV = s_.shape().HV, n = worst_ / HV, j = worst_ % HV, last = s_.shape().sequences() - 1;
    const Start start = start_of(n, j, list), first = n == 0 ? start : start_of(0, j, list);
    keep(list, [&](Suspect& x) { return starts_right(x, x.leaks() ? first : start); });
    // A constant is taken from the worst lane and holds for all.
    keep(list, [&](Suspect& x) { return compare(x, n, n, j) && explains(x); });
    keep(list, [&](Suspect& x) {
      x.fit = {}, x.o2 = x.s2 = x.o_size2 = x.s_size2 = 0;
      for (Index head = 0; head < HV; ++head)
        if (!compare(x, 0, last, head) || !explains(x)) return false;
      return true;
    });
  }

  /// Erases those for which f is false, all of them at once.
  template <class F> void keep(std::vector<Suspect>& list, F f) const {
    std::vector<char> stays(list.size());
    parallel_for(static_cast<Index>(list.size()), threads_, [&](Index i) { stays[i] = f(list[i]); });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (stays[i] && kept++ != i) list[kept - 1] = std::move(list[i]);
    list.resize(kept);
  }

  Start start_of(Index n, Index j, const std::vector<Suspect>& list) const {
    const Output<double> got = s_.candidate(n, j);
    const Index P = std::min(kStart, got.O.rows());
    Start start{.taken = {},
                .got = got.O.topRows(P),
                .allowed = kMarginal * expected_[lane(n, j)].o * norm_of(got.O, Measure::worst_row)};
    for (const Suspect& x : list) {
      if (std::ranges::find(start.taken, x.input(), &std::pair<InputFault, Problem<double>>::first) !=
          start.taken.end())
        continue;
      start.taken.emplace_back(x.input(), first_tokens(s_.lane<double>(n, j, x.input()), P));
    }
    return start;
  }

  /// Whether it computes the first tokens; true as well where the state alone may be explained.
  bool starts_right(Suspect& x, const Start& start) const {
    if (x.mistakes.size() == 1 && right_.state >= kMarginal) return true;
    if (x.leaks() && s_.shape().offsets.empty()) return false;
    for (const Index P : {kGlance, kStart}) {
      Problem<double> p = start.as(x.input());
      p.shape.T = std::min(P, p.shape.T);
      const std::optional<Output<double>> wrong = wrong_output(s_, x, p);
      if (!wrong) return false;
      const Mat<double> got = start.got.topRows(p.shape.T);
      const double c = x.has(&Mutant<double>::fitted) ? fitted_factor(wrong->O, got) : 1;
      if (p.shape.T > 0 && !(norm_of(c * wrong->O - got, Measure::worst_row) <= 1.1 * start.allowed)) return false;
    }
    return true;
  }

  /// Compares it with sequences first .. last of one head; false if its mistakes cannot be made there.
  bool compare(Suspect& x, Index first, Index last, Index j) const {
    const bool leak = x.leaks();
    if (leak && s_.shape().offsets.empty()) return false;
    std::optional<Output<double>> wrong;
    for (Index n = leak ? 0 : first; n <= last; ++n) {  // what leaks comes from all sequences before
      Problem<double> p = s_.lane<double>(n, j, x.input());
      if (leak && wrong) p.S0 = {wrong->S};
      wrong = wrong_output(s_, x, p);
      if (!wrong) return false;
      if (n < first) continue;
      const Output<double> got = s_.candidate(n, j);
      if (x.has(&Mutant<double>::fitted) && x.factor == 1) {
        x.factor = fitted_factor(wrong->O, got.O);
        if (wrong->O.size() < kFewest || !std::isfinite(x.factor)) return false;
        wrong->O *= x.factor;
      }
      const Errors e = errors(*wrong, got), &expected = expected_[lane(n, j)];
      raise(x.fit, {ratio_of(e.o, expected.o), ratio_of(e.state, expected.state)});
      x.o2 += (wrong->O - got.O).squaredNorm(), x.o_size2 += wrong->O.squaredNorm();
      if (s_.has_final_state()) x.s2 += (wrong->S - got.S).squaredNorm(), x.s_size2 += wrong->S.squaredNorm();
    }
    return true;
  }

  // ---- two mistakes

  /// Whether enough of the output refutes the right formula and each of the two mistakes alone.
  bool beyond_doubt(const Suspect& pair) const {
    std::vector<Suspect> simpler{{.mistakes = {}, .fit = {}}};
    for (const Mutant<double>* m : pair.mistakes)
      simpler.push_back({.mistakes = {m}, .C = pair.C, .factor = m->fitted ? pair.factor : 1, .fit = {}});
    return std::ranges::all_of(simpler, [&](const Suspect& x) { return witnesses(x) >= kWitnesses; });
  }

  /// Independent rows that rounding does not bring from what these mistakes make to the output. Walks the lanes until
  /// there are enough.
  Index witnesses(const Suspect& x) const {
    Index count = 0;
    for (Index j = 0; j < s_.shape().HV; ++j) {
      std::optional<Output<double>> wrong;
      for (Index n = 0; n < s_.shape().sequences() && count < kWitnesses; ++n) {
        Problem<double> p = s_.lane<double>(n, j, x.input());
        if (x.leaks() && wrong) p.S0 = {wrong->S};
        wrong = wrong_output(s_, x, p);
        if (!wrong) break;  // not made there, and so no rival
        const Output<double> got = s_.candidate(n, j);
        const Errors& expected = expected_[lane(n, j)];
        const auto rows = [](const Mat<double>& E, double limit) {
          return (E.rowwise().stableNorm().array() > limit).count();
        };
        count += rows(wrong->O - got.O, kFailed * expected.o * norm_of(got.O, Measure::worst_row));
        if (s_.has_final_state()) {
          const double share = got.S.stableNorm() / std::sqrt(static_cast<double>(got.S.rows()));
          count += std::min(p.shape.T, rows(wrong->S - got.S, kFailed * expected.state * share));
        }
      }
    }
    return count;
  }

  // ---- what is reported

  /// One entry for each id: those that explain everything, or those that explain a part; best first.
  std::vector<Diagnosis> entries(const std::vector<Suspect>& list, bool whole) const {
    std::vector<Diagnosis> found;
    for (const Suspect& x : list) {
      if (whole && !explains_all(x)) continue;
      const bool of_o = whole || explains_o(x), of_state = s_.has_final_state() && (whole || explains_state(x));
      const double e2 = (of_o ? x.o2 : 0) + (of_state ? x.s2 : 0),
                   size2 = (of_o ? x.o_size2 : 0) + (of_state ? x.s_size2 : 0);
      Diagnosis d{.id = x.id(),
                  .what = {},
                  .explains = of_o && of_state ? "o and final_state"
                              : of_o           ? "o"
                                               : "final_state",
                  .rel_error = relative(std::sqrt(e2), std::sqrt(size2))};
      for (const Mutant<double>* m : x.mistakes) d.what.emplace_back(m->what);
      if (x.C > 0) d.chunk = x.C;
      if (x.has(&Mutant<double>::fitted)) d.factor = x.factor, d.factor_is = usual(x.factor);
      // Chunk lengths that cannot be told apart, and variants of one mistake, share an entry.
      const auto same = std::ranges::find(found, d.id, &Diagnosis::id);
      if (same == found.end()) {
        found.push_back(d);
      } else if (same->chunk && std::abs(same->rel_error - d.rel_error) < 0.3 * d.rel_error) {
        same->chunk.reset(), same->rel_error = std::min(same->rel_error, d.rel_error);
      } else if (d.rel_error < same->rel_error) {
        *same = d;
      }
    }
    std::ranges::stable_sort(found, {}, &Diagnosis::rel_error);
    return found;
  }

  /// The name of a constant by which outputs are often off; empty if it is none.
  std::string usual(double factor) const {
    const double d_k = static_cast<double>(s_.shape().d_k), d_v = static_cast<double>(s_.shape().d_v);
    const std::pair<const char*, double> names[] = {{"-1", -1},
                                                    {"sqrt(d_k)", std::sqrt(d_k)},
                                                    {"1/sqrt(d_k)", 1 / std::sqrt(d_k)},
                                                    {"sqrt(d_v)", std::sqrt(d_v)},
                                                    {"1/sqrt(d_v)", 1 / std::sqrt(d_v)},
                                                    {"d_k", d_k},
                                                    {"1/d_k", 1 / d_k},
                                                    {"sqrt(d_k/d_v)", std::sqrt(d_k / d_v)},
                                                    {"sqrt(d_v/d_k)", std::sqrt(d_v / d_k)},
                                                    {"2", 2},
                                                    {"1/2", 0.5},
                                                    {"log2(e)", 1 / std::log(2)},
                                                    {"ln(2)", std::log(2)}};
    for (const auto& [name, value] : names)
      if (std::abs(factor / value - 1) < 1e-3) return name;
    return {};
  }

  static constexpr Index kGlance = 8, kStart = 80;  ///< tokens that a suspect is tried on before a whole lane
  static constexpr Index kFewest = 16;  ///< a constant fits the one number of a small lane, whatever was wrong

  std::size_t lane(Index n, Index j) const { return static_cast<std::size_t>(n * s_.shape().HV + j); }

  const Subject& s_;
  const std::vector<Errors>& expected_;
  int threads_;
  Errors right_;     ///< how well the right formula fits
  Index worst_ = 0;  ///< the lane where it fits worst
};

}  // namespace

std::vector<Diagnosis> diagnose(const Subject& s, const std::vector<Errors>& error, const std::vector<Errors>& expected,
                                int threads) {
  return Inquiry(s, error, expected, threads).run();
}

}  // namespace delta
