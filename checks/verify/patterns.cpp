// SPDX-License-Identifier: Apache-2.0
#include "checks/verify/patterns.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "checks/core/parallel_for.hpp"
#include "checks/core/ratio.hpp"
#include "reference/forms/recurrent.hpp"

namespace delta {
namespace {

using Places = std::vector<Index>;

std::string list(const Places& places, std::size_t most) {
  std::string s;
  for (std::size_t i = 0; i < std::min(places.size(), most); ++i) s += (i ? ", " : "") + std::to_string(places[i]);
  return s + (places.size() > most ? ", ..." : "");
}

/// The first and the last wrong place, if all between them are wrong.
std::optional<std::pair<Index, Index>> run_of(const std::vector<bool>& wrong) {
  const auto first = std::ranges::find(wrong, true), end = std::find(first, wrong.end(), false);
  if (first == wrong.end() || std::find(end, wrong.end(), true) != wrong.end()) return std::nullopt;
  return std::pair(first - wrong.begin(), end - wrong.begin() - 1);
}

/// Whether being wrong depends on the place within a period only, which is seen twice at least.
bool has_period(const std::vector<bool>& wrong, std::size_t p) {
  for (std::size_t i = p; i < wrong.size(); ++i)
    if (wrong[i] != wrong[i - p]) return false;
  return 2 * p <= wrong.size();
}

/// The ratio of each place of an axis, the largest of all lanes.
struct Axis {
  std::string id, what;
  std::vector<double> ratio = {};

  void raise(Index at, double x) {
    if (at >= static_cast<Index>(ratio.size())) ratio.resize(static_cast<std::size_t>(at) + 1, 0);
    double& r = ratio[static_cast<std::size_t>(at)];
    if (!(x <= r)) r = x;  // not a number stays
  }
  /// Which places are wrong; nothing if that is not plain of each.
  std::optional<std::vector<bool>> wrong() const {
    constexpr double kGap = 3;  // between the places that are right and those that are wrong
    std::vector<bool> all;
    double right = 0, least = INFINITY;
    for (const double r : ratio) {
      all.push_back(!(r < kFailed));
      if (all.back())
        least = std::fmin(least, r);
      else
        right = std::max(right, r);
    }
    if (!(right < kMarginal) || least < kGap * right) return std::nullopt;
    return all;
  }
};

Output<double> right_output(const Subject& s, Index n, Index j) {
  const Problem<double> p = s.lane<double>(n, j);
  Output<double> out{Mat<double>(p.shape.T, p.shape.d_v), Mat<double>(p.shape.d_v, p.shape.d_k)};
  each_stream<double>(s.rule(), p, [&](const Stream<double>& st, Index channel) {
    const Output<double> o = recurrent<double>(st);
    place(out, {s.scale() * o.O, o.S}, channel);
  });
  return out;
}

const Mat<double>& tensor_of(const Output<double>& o, const std::string& tensor) { return tensor == "o" ? o.O : o.S; }

/// "sequence 1 repeats sequence 0", where every wrong lane holds what belongs to another one.
/// \param wrong  the wrong lanes of one tensor
std::string repetition(const Subject& s, const std::vector<const Measured*>& wrong, int threads) {
  const Shape& z = s.shape();
  const std::string& tensor = wrong[0]->tensor;
  // What each lane should hold is told apart by its last row, and only then compared as a whole.
  std::vector<Vec<double>> last(static_cast<std::size_t>(s.lanes()));
  parallel_for(s.lanes(), threads, [&](Index lane) {
    const Output<double> want = right_output(s, lane / z.HV, lane % z.HV);
    const Mat<double>& W = tensor_of(want, tensor);
    if (W.rows() > 0) last[static_cast<std::size_t>(lane)] = W.row(W.rows() - 1).transpose();
  });
  std::map<Index, Index> sequences, heads;  // what is wrong, and what it repeats
  for (const Measured* m : wrong) {
    const Output<double> output = s.candidate(m->n, m->head);
    const Mat<double>& got = tensor_of(output, tensor);
    if (got.rows() == 0 || got.cols() < 4) return {};  // a few numbers are alike by chance
    const double allowed = kMarginal * m->expected * norm_of(got, m->measure);
    const auto holds = [&](Index n, Index j) {
      const Vec<double>& row = last[static_cast<std::size_t>(n * z.HV + j)];
      if (row.size() != got.cols() || !((got.row(got.rows() - 1).transpose() - row).norm() < allowed)) return false;
      const Output<double> want = right_output(s, n, j);
      const Mat<double>& W = tensor_of(want, tensor);
      return W.rows() == got.rows() && norm_of(got - W, m->measure) < allowed;
    };
    std::optional<Index> source;
    for (Index n = 0; n < z.sequences() && !source && heads.empty(); ++n)
      if (n != m->n && holds(n, m->head)) source = n;
    if (source) {
      if (sequences.try_emplace(m->n, *source).first->second != *source) return {};
      continue;
    }
    for (Index j = 0; j < z.HV && !source && sequences.empty(); ++j)
      if (j != m->head && holds(m->n, j)) source = j;
    if (!source || heads.try_emplace(m->head, *source).first->second != *source) return {};
  }
  std::string text;
  const char* what = sequences.empty() ? "head " : "sequence ";
  for (const auto& [of, source] : sequences.empty() ? heads : sequences)
    text += (text.empty() ? "" : ", ") + (what + std::to_string(of)) + " repeats " + what + std::to_string(source);
  return text;
}

}  // namespace

std::string phrase(const std::vector<bool>& wrong, const std::string& what) {
  const auto n = static_cast<Index>(wrong.size());
  Places places;
  for (Index i = 0; i < n; ++i)
    if (wrong[static_cast<std::size_t>(i)]) places.push_back(i);
  if (places.empty() || static_cast<Index>(places.size()) == n) return {};
  const bool tokens = what == "token";
  if (const auto run = run_of(wrong)) {
    const auto [first, last] = *run;
    const std::string from = std::to_string(first), to = std::to_string(last);
    if (first == last) return "only " + what + " " + from;
    if (last == n - 1) return tokens ? "from token " + from + " on" : "only " + what + "s >= " + from;
    if (first == 0) return "only " + what + "s <= " + to;
    return "only " + what + "s " + from + " to " + to;
  }
  if (tokens) {
    for (const std::size_t C : {8, 16, 32, 64, 128}) {
      if (!has_period(wrong, C)) continue;
      if (const auto rows = run_of({wrong.begin(), wrong.begin() + static_cast<std::ptrdiff_t>(C)})) {
        const auto [first, last] = *rows;
        return (first == last ? "row " + std::to_string(first)
                              : "rows " + std::to_string(first) + " to " + std::to_string(last)) +
               " of each chunk of " + std::to_string(C);
      }
    }
  } else {
    for (std::size_t p = 2; 2 * p <= wrong.size(); ++p)
      if (has_period(wrong, p)) return what + "s with period " + std::to_string(p) + ": " + list(places, 3);
  }
  if (places.size() <= 4) return "only " + what + "s " + list(places, 4);
  return {};
}

std::vector<Pattern> find_patterns(const Subject& s, const std::vector<Measured>& measured, bool search, int threads) {
  std::vector<Pattern> found;
  std::vector<std::string> tensors;
  for (const Measured& m : measured)
    if (std::ranges::find(tensors, m.tensor) == tensors.end()) tensors.push_back(m.tensor);
  for (const std::string& tensor : tensors) {
    const bool state = std::ranges::find(measured, tensor, &Measured::tensor)->measure == Measure::whole;
    Axis sequences{"sequences", "sequence"}, heads{"heads", "head"},
        rows = state ? Axis{"value-channels", "value channel"} : Axis{"tokens", "token"},
        channels = state ? Axis{"key-channels", "key channel"} : Axis{"channels", "channel"};
    std::vector<const Measured*> wrong;
    bool well_posed = true;
    for (const Measured& m : measured) {
      if (m.tensor != tensor) continue;
      well_posed = well_posed && m.well_posed;
      const double ratio = ratio_of(m.error, m.expected);
      sequences.raise(m.n, ratio), heads.raise(m.head, ratio);
      for (Index i = 0; i < m.rows.size(); ++i) rows.raise(i, ratio_of(m.rows[i], m.expected));
      // The error of an even row is in its largest element some four times what it is in all of them.
      for (Index i = 0; i < m.channels.size(); ++i)
        channels.raise(i, ratio_of(m.channels[i] / (state ? 1 : 4), m.expected));
      if (!(ratio < kFailed)) wrong.push_back(&m);
    }
    if (!well_posed || wrong.empty()) continue;
    for (const Axis& a : {sequences, heads, rows, channels})
      if (const auto places = a.wrong())
        if (const std::string text = phrase(*places, a.what); !text.empty()) found.push_back({tensor, a.id, text});
    if (search && s.lanes() > 1 && (tensor == "o" || tensor == "final_state"))
      if (const std::string text = repetition(s, wrong, threads); !text.empty())
        found.push_back({tensor, "repeats", text});
  }
  return found;
}

}  // namespace delta
