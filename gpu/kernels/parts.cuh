// SPDX-License-Identifier: Apache-2.0
// What v5, v6 and v7 walk: sequences of a head, or segments of them, and the states that they begin and end with.
#pragma once
#include "gpu/kernels/hopper.cuh"

namespace delta::gpu {

/// What one launch walks. v5: every sequence whole. v6 cuts them: first `starts`, which finds the states that segments
/// start from, then `replay`, which walks each from its own.
enum class Pass { whole, starts, replay };

/// A cluster: blocks that carry the S of a head, of 64 rows each for every warpgroup, then blocks that prepare. v7: one
/// block, which does both.
struct Shape {
  int chains, producers, warpgroups, depth;  ///< depth: stages of a chain
  unsigned segments;                         ///< of a sequence
  Pass pass;
  unsigned parts, clusters;  ///< what is walked, and clusters that share it
};

/// Matrices that v6 keeps of a (sequence, head) pair: the states that segments start from, but for S_0, then the M of
/// the segments that have one. As many as the parts of `starts`.
__host__ __device__ constexpr unsigned matrices_of(unsigned segments) { return 2 * segments - 3; }
static_assert(matrices_of(2) == v6_matrices(2) && matrices_of(9) == v6_matrices(9));

/// The first chunk of segment s of a sequence of n chunks.
__device__ inline int cut(int n, unsigned s, unsigned segments) {
  static_assert(kMostSegments <= 64, "n has 25 bits, and their product 32");
  return static_cast<int>(static_cast<unsigned>(n) * s / segments);
}

/// A state in memory: its number (i, j) is data[i row + j column].
struct State {
  float* data = nullptr;
  int row = 0, column = 0;
  __device__ float& operator()(int i, int j) const { return data[i * row + j * column]; }
  /// Do numbers (i, 2 j) and (i, 2 j + 1) lie so that they can be read together?
  __device__ bool has_pairs() const { return column == 1 && reinterpret_cast<std::uintptr_t>(data) % 8 == 0; }
};

/// What a cluster walks at a stretch: consecutive chunks of a head, and the state that they carry along.
struct Part {
  int head = 0, key_head = 0;
  int batch = 0, begin = 0, length = 0;  ///< tokens begin .. of that batch entry
  int chunks = 0;
  std::int64_t slot = 0;  ///< of the first chunk
  bool outputs = true;    ///< o and traces are written
  bool transfer = false;  ///< M of a segment: V = 0, and S starts from I. It ends where a whole chunk does
  State from, to;         ///< no data: S starts from 0 or I; what becomes of it is not wanted

  /// Where a chunk has its place in the arrays of a trace.
  __device__ std::int64_t place(const Arguments& a, int c) const { return (slot + c) * a.HV + head; }
};

/// The part of that number. A (sequence, head) pair has in pass
///   whole   one, from S_0 to the final state
///   starts  the segments but the last, the first from S_0 and with its outputs, the others from 0 (N); then M of those
///           others. Each leaves what it makes in a matrix of the workspace, which has the part's number
///   replay  the segments but the first, each from where v6_scan.cuh has left its start, the last to the final state
/// Segment s has the chunks floor(n s / segments) .. of n; where there are fewer chunks than segments, some have none.
/// \formula{F59}
__device__ inline Part find_part(const Arguments& a, const Shape& shape, unsigned number) {
  Part p;
  const unsigned segments = shape.segments, matrices = matrices_of(segments), heads = static_cast<unsigned>(a.HV);
  unsigned pair = number, segment = 0;
  if (shape.pass == Pass::starts) {
    pair = number / matrices, segment = number % matrices;
    p.transfer = segment >= segments - 1;
    if (p.transfer) segment -= segments - 2;
    p.outputs = segment == 0;
  } else if (shape.pass == Pass::replay) {
    pair = number / (segments - 1), segment = number % (segments - 1) + 1;
  }
  const unsigned n = pair / heads;
  const Sequence s = a.sequence(n);
  p.head = static_cast<int>(pair % heads), p.key_head = a.key_head(p.head);
  p.batch = static_cast<int>(s.batch), p.begin = static_cast<int>(s.begin), p.length = static_cast<int>(s.length);
  p.chunks = (p.length + kChunk - 1) / kChunk, p.slot = first_slot(a, n, kChunk);
  if (shape.pass != Pass::whole) {
    const int first = cut(p.chunks, segment, segments), last = cut(p.chunks, segment + 1, segments);
    p.length = max(0, min(p.length, last * kChunk) - first * kChunk);
    p.begin += first * kChunk, p.slot += first, p.chunks = last - first;
  }
  const auto state = [&](const void* all, unsigned index, bool vk) {
    const std::int64_t size = static_cast<std::int64_t>(a.d_k) * a.d_v;
    float* const data = all ? static_cast<float*>(const_cast<void*>(all)) + index * size : nullptr;
    return vk ? State{data, a.d_k, 1} : State{data, 1, a.d_v};
  };
  if (shape.pass == Pass::replay)
    p.from = state(a.workspace, pair * matrices + segment - 1, true);
  else if (segment == 0)
    p.from = state(a.initial_state, pair, a.state_vk);
  if (shape.pass == Pass::starts)
    p.to = state(a.workspace, number, true);
  else if (segment + 1 == segments)
    p.to = state(a.final_state, pair, a.state_vk);
  return p;
}

/// A thread's numbers of S from memory: of rows i and i + 8, columns j and j + 1 of every eight. Neighbours are read
/// together where they lie together: nothing else happens where a sequence begins or ends.
template <int N> __device__ inline void read_state(float (&S)[N], const State& from, int i, int j) {
  if (from.has_pairs()) {
    const float* const at = &from(i, j);
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      const float2 x = *reinterpret_cast<const float2*>(at + row_of(e) * from.row + column_of(e));
      S[e] = x.x, S[e + 1] = x.y;
    }
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) S[e] = from(i + row_of(e), j + column_of(e));
  }
}
/// And to memory.
template <int N> __device__ inline void write_state(const float (&S)[N], const State& to, int i, int j) {
  if (to.has_pairs()) {
    float* const at = &to(i, j);
#pragma unroll
    for (int e = 0; e < N; e += 2)
      *reinterpret_cast<float2*>(at + row_of(e) * to.row + column_of(e)) = make_float2(S[e], S[e + 1]);
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) to(i + row_of(e), j + column_of(e)) = S[e];
  }
}

}  // namespace delta::gpu
