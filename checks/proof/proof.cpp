// SPDX-License-Identifier: Apache-2.0
#include "checks/proof/proof.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "checks/core/parallel_for.hpp"
#include "checks/proof/ball_rules.hpp"
#include "checks/verify/subject.hpp"
#include "reference/forms/recurrent.hpp"
#include "reference/scalars/convert.hpp"

namespace delta {
namespace {

using Norms = std::vector<Ball>;

/// |a_r| of each row, or of all rows together.
Norms norms(const Mat<Ball>& A, bool by_row) {
  Norms n(by_row ? static_cast<std::size_t>(A.rows()) : 1);
  for (Index r = 0; r < A.rows(); ++r)
    for (Index c = 0; c < A.cols(); ++c) n[by_row ? static_cast<std::size_t>(r) : 0] += A(r, c) * A(r, c);
  for (Ball& x : n) x = sqrt(x);
  return n;
}

Ball largest(const Norms& n) {
  Ball m;
  for (const Ball& x : n) m = max(m, x);
  return m;
}

/// The error of a tensor as the verdicts measure it: 0/0 is 0, and what is divided by nothing is infinite.
Ball error_of(const Mat<Ball>& want, const Mat<double>& got, bool by_row) {
  Mat<Ball> E(want.rows(), want.cols());
  for (Index c = 0; c < E.cols(); ++c)
    for (Index r = 0; r < E.rows(); ++r) E(r, c) = Ball(got(r, c)) - want(r, c);
  const Ball error = largest(norms(E, by_row));
  return error == Ball(0) ? error : error / largest(norms(want, by_row));
}

/// The end of a ball in a format: rounded once, to nearest.
double nearest(const Ball& b, bool upper, const Format& f) {
  arf_t end, rest;
  arf_init(end), arf_init(rest);
  (upper ? arb_get_ubound_arf : arb_get_lbound_arf)(end, b.arb(), BallBits::get());
  const double x = arf_get_d(end, ARF_RND_NEAR);
  arf_set_d(rest, x);
  arf_sub(rest, end, rest, 30, ARF_RND_DOWN);
  const double sign = arf_sgn(rest);  // of what the double leaves out
  arf_clear(end), arf_clear(rest);
  return f.p >= kFp64.p ? x : f.round(rounded_to_odd({x, sign * 0x1p-1000}));
}

/// Counts the elements that are the exact number rounded to nearest, which a ball shows if its two ends round alike.
void count_rounded(const Mat<Ball>& want, const Mat<double>& got, const Format& f, Proved& t) {
  for (Index c = 0; c < want.cols(); ++c)
    for (Index r = 0; r < want.rows(); ++r) {
      const double low = nearest(want(r, c), false, f), high = nearest(want(r, c), true, f);
      t.elements += 1;
      t.rounded += got(r, c) == low && low == high;
      t.not_rounded += !(low <= got(r, c) && got(r, c) <= high);
    }
}

/// Whether the bounds of an error are within a thousandth of it. An error that is far below what the type resolves
/// needs no more than its upper bound.
bool sharp(const Ball& error, const Format& f) {
  const double lower = error.lower(), upper = error.upper();
  return upper - lower <= lower / 1000 || upper <= f.unit() * 0x1p-40;
}

/// How many bits more would have made it sharp: the radius is in proportion to 2^-bits.
double missing_bits(const Ball& error, const Format& f) {
  const double size = std::max(std::min(error.middle(), f.unit()), f.unit() * 0x1p-40);
  return error.finite() ? error.log2_radius() - std::log2(size) + 32 : INFINITY;
}

/// Beyond so many bits the error is beyond all bounds, or nothing.
long most_bits(Index rows) { return 4096 + 16 * static_cast<long>(rows); }

/// Adds what was proved of one more lane.
void add(Proof& to, const Proof& lane) {
  for (const Proved& t : lane.outputs) {
    const auto known = std::ranges::find(to.outputs, t.tensor, &Proved::tensor);
    if (known == to.outputs.end()) {
      to.outputs.push_back(t);
      continue;
    }
    known->error = {std::max(known->error.lower, t.error.lower), std::max(known->error.upper, t.error.upper)};
    known->elements += t.elements, known->rounded += t.rounded, known->not_rounded += t.not_rounded;
  }
  to.bits = std::max(to.bits, lane.bits), to.sharp = to.sharp && lane.sharp;
  ++to.lanes;
}

/// An output of one lane: what it should be in balls, what it is, and the type it is stored in.
struct Claim {
  const char* tensor;
  const Mat<Ball>& want;
  const Mat<double>& got;
  const Format& type;
  bool by_row;
};

/// \param exact  the outputs in balls, of this thread's bits   \param state  whether there is a state to judge
Proof prove_lane(const std::function<Output<Ball>()>& exact, const Output<double>& got, const Format& o_type,
                 const Format& state_type, bool state) {
  const bool finite = got.O.allFinite() && (!state || got.S.allFinite());
  for (long bits = 128;;) {
    const BallBits::Scope scope(bits);
    const Output<Ball> want = exact();
    std::vector<Claim> claims{{"o", want.O, got.O, o_type, true}};
    if (state) claims.push_back({"final_state", want.S, got.S, state_type, false});
    Proof proof{.bits = bits};
    double missing = 0;
    for (const Claim& c : claims) {
      const Ball error = error_of(c.want, c.got, c.by_row);
      proof.sharp = proof.sharp && (sharp(error, c.type) || !finite);
      missing = std::max(missing, missing_bits(error, c.type));
      Proved& t = proof.outputs.emplace_back(Proved{.tensor = c.tensor});
      t.error = finite ? Bounds{std::max(0.0, error.lower()), error.upper()} : Bounds{INFINITY, INFINITY};
      count_rounded(c.want, c.got, c.type, t);
    }
    if (proof.sharp || bits >= most_bits(got.O.rows())) return proof;
    bits += missing < 1e5 ? std::max(64L, std::lround(missing)) : bits;
  }
}

/// Every recurrence of a lane in balls, the read-out multiplied by `scale`.
Output<Ball> exact_lane(const Rule& rule, const Problem<Ball>& p, Index n, Index j, const Ball& scale) {
  Output<Ball> lane{Mat<Ball>(p.shape.length(n), p.shape.d_v), Mat<Ball>(p.shape.d_v, p.shape.d_k)};
  each_stream<Ball>(rule.info, rule.over<Ball>(), p, n, j, [&](const Stream<Ball>& s, Index channel) {
    const Output<Ball> o = recurrent<Ball>(s);
    place(lane, {o.O * scale, o.S}, channel);
  });
  return lane;
}

/// The first tokens of a lane (B = HV = 1).
template <class T> void cut(Problem<T>& p, Index tokens) {
  auto shorten = [&](Tensor<T>& x) {
    if (x.empty()) return;
    x.tokens = tokens;
    x.data.resize(static_cast<std::size_t>(tokens * x.heads * x.rows * x.cols));
  };
  for (Tensor<T>* x : {&p.q, &p.k, &p.v, &p.beta, &p.alpha, &p.lambda}) shorten(*x);
  for (Tensor<T>& x : p.inputs) shorten(x);
  p.shape.T = tokens;
}

/// Seconds of one core that a proof of so many tokens takes, roughly: a ball operation costs what its bits cost, and
/// the bits grow with the number of micro-steps.
double seconds_for(const Shape& z, Index tokens) {
  const double steps = static_cast<double>(tokens * std::max<Index>(z.n_h, 1));
  const double bits = 128 + 0.6 * steps;
  return steps * static_cast<double>(z.d_k * z.d_v) * (4.5e-7 + 4e-10 * bits);
}

}  // namespace

bool have_balls() { return true; }
void require_balls() {}

Proof prove(const Subject& s, Index first, int threads, double seconds) {
  const Shape& z = s.shape();
  Proof proof{.of_lanes = s.lanes()};
  for (Index n = 0; n < z.sequences(); ++n) proof.of_tokens = std::max(proof.of_tokens, z.length(n));
  if (s.lanes() == 0) return proof;

  // The lane to begin with, cut where its time ends; then the others in their order, as many as there is time for.
  std::vector<Index> lanes(static_cast<std::size_t>(s.lanes()));
  std::iota(lanes.begin(), lanes.end(), Index{0});
  std::rotate(lanes.begin(), lanes.begin() + first, lanes.begin() + first + 1);
  proof.tokens = proof.of_tokens;
  while (proof.tokens > 1 && seconds_for(z, proof.tokens) > seconds) proof.tokens = proof.tokens * 3 / 4;
  double left = seconds * threads;
  std::size_t many = 0;
  for (; many < lanes.size(); ++many) {
    left -= seconds_for(z, std::min(proof.tokens, z.length(lanes[many] / z.HV)));
    if (left < 0 && many > 0) break;
  }
  lanes.resize(many);

  const bool state = s.has_final_state() && proof.tokens == proof.of_tokens;
  std::vector<Proof> proofs(lanes.size());
  parallel_for(static_cast<Index>(lanes.size()), threads, [&](Index i) {
    const Index n = lanes[static_cast<std::size_t>(i)] / z.HV, j = lanes[static_cast<std::size_t>(i)] % z.HV;
    const Index tokens = std::min(proof.tokens, z.length(n));
    Output<double> got = s.candidate(n, j);
    got.O.conservativeResize(tokens, Eigen::NoChange);
    const auto exact = [&] {
      Problem<Ball> p = s.lane<Ball>(n, j);
      cut(p, tokens);
      return exact_lane(s.rule(), p, 0, 0, Ball(s.scale()));
    };
    proofs[static_cast<std::size_t>(i)] =
        prove_lane(exact, got, s.format_of("o"), state ? s.format_of("final_state") : kFp64, state);
    flint_cleanup();  // what Arb keeps for this thread
  });
  for (const Proof& lane : proofs) add(proof, lane);
  return proof;
}

Proof prove(const Rule& rule, const Problem<double>& p, const Result<double>& got) {
  Proof proof{.of_lanes = static_cast<Index>(got.size()), .tokens = p.shape.T, .of_tokens = p.shape.T};
  const Problem<Ball> given = p.map<Ball>([](double x) { return Ball(x); });
  for (Index n = 0; n < p.shape.sequences(); ++n)
    for (Index j = 0; j < p.shape.HV; ++j) {
      const auto exact = [&] { return exact_lane(rule, taken<Ball>(given, {}), n, j, Ball(1)); };
      add(proof, prove_lane(exact, got[static_cast<std::size_t>(n * p.shape.HV + j)], kFp64, kFp64, true));
    }
  return proof;
}

}  // namespace delta
