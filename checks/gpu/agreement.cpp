// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "checks/gpu/judges.hpp"
#include "gpu/schedule/hopper.hpp"

namespace delta::gpu {
namespace {

/// Beyond this nothing is told: what fails at twice that is as far from the schedule as from the exact result.
constexpr double kTold = 0.5;

/// Three versions of the same numbers, over chunks and heads: a kernel's, its schedule's, and the exact ones.
struct Agreement {
  double kernel_to_schedule = 0, exact_to_schedule = 0, exact = 0;  ///< sums of squares
  double roundings = 0;                                             ///< that decide them

  void add(const Mat<double>& from_kernel, const Mat<double>& from_schedule, const Mat<double>& want, double rounded) {
    kernel_to_schedule += (from_kernel - from_schedule).squaredNorm();
    exact_to_schedule += (want - from_schedule).squaredNorm();
    exact += want.squaredNorm(), roundings += rounded;
  }

  double figure() const { return ratio_of(std::sqrt(kernel_to_schedule), std::sqrt(exact_to_schedule)); }

  /// What may be between a kernel and its schedule is the order of sums in fp32 and 2^x, and the roundings to 16 bits
  /// that fall to the other side for it. Two numbers delta apart round to different neighbours with probability
  /// delta / ulp, and are then an ulp apart; a rounding errs by ulp / sqrt(12). An ulp is between u and 2 u of the
  /// number; with u for it the figure is an upper one, about
  /// \f[ \sqrt{12\,(sums / u + 4 / n)}, \f]
  /// sums being delta relative to the numbers, and 4 / n those few of n that flip however small their probability. Each
  /// number of o is one of them; what decides a state are the numbers of D_w E, as many as tokens have a share in it.
  /// Independent roundings in the same places would make it sqrt(2), a single one in another place about 1/2. The
  /// roundings of v7 to tf32 have no term of their own, for they are no larger than those that follow them.
  double expected_figure(double sums, const Format& f) const {
    return std::sqrt(12 * (sums / f.unit() + 4 / std::max(1.0, roundings)));
  }

  Row judged(Row row, double sums, const Format& f) const {
    const auto size = [&](double squares) { return relative(std::sqrt(squares), std::sqrt(exact)); };
    const bool rounds_nothing = exact > 0 && exact_to_schedule == 0;  // beta = 0
    const double expected = rounds_nothing ? 0 : expected_figure(sums, f);
    if (size(exact_to_schedule) > sums)  // else nothing was rounded to 16 bits
      row.figures = {{"kernel_to_schedule", figure()}, {"expected_kernel_to_schedule", expected}};
    if (expected < kTold) return gpu::judged(row, size(kernel_to_schedule), expected * size(exact_to_schedule) + sums);
    row.verdict = Verdict::untrusted, row.ratio = NAN, row.reason = "sums in fp32 decide too many of its roundings";
    return row;
  }
};

/// How many tokens the state at a chunk's end is made of, by their shares D_w: all of them without decay and with equal
/// strengths, one with strong gates.
double share_holders(const Vec<double>& write) {
  const double squares = write.squaredNorm(), fourth = write.array().square().square().sum();
  return fourth > 0 ? squares * squares / fourth : 0;
}

/// The chunks that start from a state that no trace shows. A segment of v6 starts from S_s M_s + N_s, which is the
/// state that the segment before it ends with to within rounding only: as far from it as the exact one is. The second
/// segment starts from the very state that the first one leaves.
std::set<Index> starts_unseen(Index n, Index segments) {
  const std::vector<Index> at = cuts(n, segments);
  std::set<Index> unseen(at.begin() + 1, at.end());
  unseen.erase(0), unseen.erase(at[1]);  // S_0, also through empty segments: M = I and N = 0 are exact
  return unseen;
}

}  // namespace

void judge_agreement(const Case& c, Model& model, const Call& call, const Answer& got, const Report& report) {
  if (!model.outside(got.plan, call.dtype).empty() || !got.traces.contains("S")) return;
  const SixteenBits round{format_of(call.dtype)};
  const Solve solve = solve_of(got.plan);
  const Shape& z = c.shape();
  Agreement o, state, all_o, all_states;
  for (Index n = 0; n < z.sequences(); ++n)
    for (Index h = 0; h < z.HV && z.length(n) > 0; ++h) {
      const Head<double> head = c.head(n, h);
      const Output<double>& own = got.result[static_cast<std::size_t>(n * z.HV + h)];
      const Output<double> schedule = hopper(head, solve, round, got.plan.segments),
                           exact = hopper(head, solve, Exact{});
      all_o.add(own.O, schedule.O, exact.O, 0), all_states.add(own.S, schedule.S, exact.S, 0);  // shown, not judged

      // Each chunk from the kernel's own state: one flipped rounding of a state moves all that follows, and after a few
      // chunks a kernel is as far from its schedule as from the exact result.
      const Mat<double> states = traced(got, z, n, h).at("S");
      const std::set<Index> unseen = starts_unseen(states.rows() / z.d_v, got.plan.segments);
      Mat<double> S = head.S0;
      for (Index begin = 0; begin < head.tokens(); begin += got.plan.chunk) {
        const Mat<double> S_next = states.middleRows(begin / got.plan.chunk * z.d_v, z.d_v);
        if (unseen.contains(begin / got.plan.chunk)) {
          S = S_next;
          continue;
        }
        const Prepared<double> p = prepare(head, begin, solve, {}, round), e = prepare(head, begin, solve, {}, Exact{});
        const Mat<double> E = errors(S, p, p.V, round), E_exact = errors(S, e, e.V, Exact{});
        o.add(own.O.middleRows(begin, p.Q.rows()), outputs(S, p, E, round), outputs(S, e, E_exact, Exact{}),
              static_cast<double>(p.Q.rows() * z.d_v));
        state.add(S_next, next_state(S, p, E, round), next_state(S, e, E_exact, Exact{}),
                  static_cast<double>(z.d_v) * share_holders(e.write));
        S = S_next;
      }
    }
  const Expected sums = model.sums();
  const auto tell = [&](const std::string& what, const Agreement& by_chunk, const Agreement& whole, double sum) {
    Row row = by_chunk.judged(c.row(call, what + ": agreement with the schedule"), sum, round.format);
    if (!row.figures.empty()) row.figures["kernel_to_schedule_whole"] = whole.figure();
    report(row);
  };
  tell("o", o, all_o, sums.o), tell("state", state, all_states, sums.state);
}

}  // namespace delta::gpu
