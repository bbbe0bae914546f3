// SPDX-License-Identifier: Apache-2.0
// A sequence in segments that are walked at the same time: exact, because what a run of tokens makes of a state is
// affine.
#pragma once
#include <span>
#include <vector>

#include "gpu/schedule/chain.hpp"

namespace delta::gpu {

/// Consecutive chunks.
template <Ring T> using Segment = std::span<const Prepared<T>>;

/// Where a sequence of n chunks is cut into segments of nearly equal length: the first chunk of each, and n. Where
/// there are fewer chunks than segments, some are empty.
inline std::vector<Index> cuts(Index n, Index segments) {
  std::vector<Index> at;
  for (Index s = 0; s <= segments; ++s) at.push_back(n * s / segments);
  return at;
}

/// The chunks, cut there.
template <Ring T> std::vector<Segment<T>> cut(const std::vector<Prepared<T>>& chunks, Index segments) {
  const std::vector<Index> at = cuts(std::ssize(chunks), segments);
  std::vector<Segment<T>> parts;
  for (std::size_t s = 0; s + 1 < at.size(); ++s)
    parts.emplace_back(chunks.begin() + at[s], chunks.begin() + at[s + 1]);
  return parts;
}

/// M of a segment, by which it multiplies the state before it: its chain from S = I, with V = 0.
/// \return [d_k x d_k]   \formula{F59}
template <Ring T, class Rounding> Mat<T> transfer(const Segment<T>& segment, Index d_k, const Rounding& round) {
  Mat<T> S = Mat<T>::Identity(d_k, d_k);
  for (const Prepared<T>& p : segment) {
    const Mat<T> nothing = Mat<T>::Zero(p.V.rows(), d_k);  // [c x d_k]
    S = next_state(S, p, errors(S, p, nothing, round), round);
  }
  return S;
}

/// The state that a segment leaves where it starts from S. From S = 0 it is N, what it writes itself.
/// \return [d_v x d_k]   \formula{F59}
template <Ring T, class Rounding> Mat<T> end_state(Mat<T> S, const Segment<T>& segment, const Rounding& round) {
  for (const Prepared<T>& p : segment) S = next_state(S, p, errors(S, p, p.V, round), round);
  return S;
}

/// The state at the start of each segment, S_0 first. All M and N are independent of each other; what has to wait is
/// one product a segment, in which nothing is rounded to 16 bits,
/// \f[ S_{s+1} = S_s M_s + N_s. \f]
/// The first segment starts from S_0 itself and needs no M; the last one is walked by the replay alone.
/// \formula{F59} \formula{F60}
template <Ring T, class Rounding>
std::vector<Mat<T>> scan(const Mat<T>& S0, const std::vector<Segment<T>>& segments, const Rounding& round) {
  std::vector<Mat<T>> starts{S0};
  for (std::size_t s = 0; s + 1 < segments.size(); ++s) {
    if (s == 0) {
      starts.push_back(end_state(S0, segments[s], round));
      continue;
    }
    const Mat<T> M = transfer(segments[s], S0.cols(), round);                               // [d_k x d_k]
    const Mat<T> N = end_state<T>(Mat<T>::Zero(S0.rows(), S0.cols()), segments[s], round);  // [d_v x d_k]
    starts.push_back(starts.back() * M + N);
  }
  return starts;
}

}  // namespace delta::gpu
