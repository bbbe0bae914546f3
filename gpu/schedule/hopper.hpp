// SPDX-License-Identifier: Apache-2.0
// The schedule of v5 in plain C++, over any scalar; with more than one segment, that of v6; where the chain solves,
// that of v7, in one segment. A head of a sequence is served by two kinds of workers: producers prepare chunks, none
// waiting for another, and chains carry the state S through them, one after the other. With `Exact` it is an identity,
// proved over the rationals; with `SixteenBits` it rounds where the kernel rounds, and its error is what that kernel is
// expected to make.
#pragma once
#include "gpu/schedule/split.hpp"

namespace delta::gpu {

/// What is shown of each chunk.
template <Ring T> struct Walked {
  Prepared<T> prepared;
  Mat<T> E;  ///< [c x d_v]
  Mat<T> O;  ///< [c x d_v]
  Mat<T> S;  ///< [d_v x d_k] at the chunk's end
};

/// Walks a segment for its outputs. \param S  the state, edited in place   \param O  [T x d_v] its rows are filled in
template <Ring T, class Rounding>
void replay(Mat<T>& S, const Segment<T>& segment, Mat<T>& O, const Rounding& round,
            const Watch<Walked<T>>& watch = nullptr) {
  for (const Prepared<T>& p : segment) {
    const Mat<T> E = errors(S, p, p.V, round), O_chunk = outputs(S, p, E, round);
    S = next_state(S, p, E, round);
    O.middleRows(p.begin, O_chunk.rows()) = O_chunk;
    if (watch) watch({p, E, O_chunk, S});
  }
}

/// A head from its first token to its last: prepare, cut, scan, replay.
/// \param segments  1: as v5 and v7; more: walked at the same time   \param watch  is shown each chunk, in order
/// \formula{F84}
template <Ring T, class Rounding>
Output<T> hopper(const Head<T>& head, Solve solve, const Rounding& round, Index segments = 1, const Tiles& tiles = {},
                 const Watch<Walked<T>>& watch = nullptr) {
  std::vector<Prepared<T>> chunks;
  for (Index begin = 0; begin < head.tokens(); begin += tiles.chunk)
    chunks.push_back(prepare(head, begin, solve, tiles, round));
  const std::vector<Segment<T>> parts = cut(chunks, segments);
  const std::vector<Mat<T>> starts = scan(head.S0, parts, round);

  Output<T> out{Mat<T>(head.tokens(), head.V.cols()), head.S0};
  for (std::size_t s = 0; s < parts.size(); ++s) replay(out.S = starts[s], parts[s], out.O, round, watch);
  return out;
}

/// Every head of every sequence.
template <Ring T, class Rounding>
Result<T> hopper(const RuleInfo& rule, const Problem<T>& p, Solve solve, const Rounding& round, Index segments = 1,
                 const Tiles& tiles = {}) {
  Result<T> out;
  for (Index n = 0; n < p.shape.sequences(); ++n)
    for (Index j = 0; j < p.shape.HV; ++j) out.push_back(hopper(head(rule, p, n, j), solve, round, segments, tiles));
  return out;
}

}  // namespace delta::gpu
