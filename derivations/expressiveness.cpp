// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # What the transitions can do: parity, permutations, overwriting
//
// With integer keys everything below happens in integers, without any rounding, in any precision.

template <Ring T> void expressiveness(Derivation<T>& d) {
  const Index d_k = d.size("d_k", 3, 24), d_v = d.size("d_v", 2, 20);
  const Mat<T> I = Mat<T>::Identity(d_k, d_k);
  const auto axis = [&](Index i) {
    Vec<T> e = Vec<T>::Zero(d_k);
    e[i] = T(1);
    return e;
  };

  // ## 1. Parity needs beta |k|^2 = 2
  //
  // With a unit key and beta = 2 the transition reflects: what is stored under k changes its
  // sign. A bit of parity is one such channel; beta = 2 bit, v = 0.

  const Vec<T> v = d.vector(d_v), k = axis(0);
  Mat<T> S = v * k.transpose();  // the value stands for parity 0
  const int bits[] = {1, 0, 1, 1, 0, 1, 1, 0};
  int ones = 0;
  for (int bit : bits) {
    S -= T(2 * bit) * (S * k) * k.transpose();
    ones += bit;
    d.equal("D8", "beta = 2 bit: S k = (-1)^(number of ones) v", S * k, T(ones % 2 ? -1 : 1) * v);
  }
  if constexpr (ordered<T>) {
    for (int i = 0; i < 8; ++i) {
      const Vec<T> key = d.unit(d_k), s = d.vector(d_k);
      const T beta = i == 0 ? T(1) : d.fraction();
      d.at_most("D8",
                "beta <= 1, unit key: x (I - beta k k^T) x >= 0, no direction changes its sign",
                T(0), T(s.dot(s) - beta * s.dot(key) * s.dot(key)));
    }
  }
  const Vec<T> unit = d.unit(d_k);
  d.equal("D8", "with equality at beta = 1 and x = k",
          T(unit.dot(unit) - unit.dot(unit) * unit.dot(unit)), T(0));
  // Why: the transition of the bit 1 has the eigenvalues 1 and 1 - beta >= 0, so its powers tend to a
  // limit and never alternate. Parity must alternate for as long as ones arrive.

  // ## 2. Permutations
  //
  // k = e_i - e_j has |k|^2 = 2, and I - k k^T exchanges channels i and j. Swaps generate every
  // permutation, so a rule with several micro-steps a token composes permutations.

  const auto swap = [&](Index i, Index j) {
    const Vec<T> key = axis(i) - axis(j);
    return Mat<T>(I - key * key.transpose());
  };
  Mat<T> exchanged = I;
  exchanged.col(0).swap(exchanged.col(1));
  const Mat<T> cycle = swap(0, 1) * swap(1, 2);  // [d_k x d_k]
  d.show("swap(0, 1)", swap(0, 1), "swap(0, 1) swap(1, 2)", cycle);
  d.equal("D8", "I - (e_i - e_j)(e_i - e_j)^T exchanges i and j", swap(0, 1), exchanged);
  d.equal("D8", "two swaps make a 3-cycle: its cube is I", cycle * Mat<T>(cycle * cycle), I);
  d.differs("D8", "and it is no swap: its square is not I", cycle * cycle, I);

  // Reversing all channels with swaps of neighbours, as a sorting network would:

  Mat<T> reached = I;
  for (Index end = d_k; end-- > 0;)
    for (Index i = 0; i < end; ++i) reached = reached * swap(i, i + 1);
  Mat<T> reversal = Mat<T>::Zero(d_k, d_k);
  for (Index i = 0; i < d_k; ++i) reversal(i, d_k - 1 - i) = T(1);
  d.equal("D8", "swaps of neighbours reach the reversal of all channels", reached, reversal);

  // ## 3. Recall with overwriting
  //
  // The bare rule on associative recall: orthonormal keys, some written twice. Linear attention
  // returns the sum of all values of a key, the delta rule with beta = 1 the last one.

  Mat<T> sum = Mat<T>::Zero(d_v, d_k), last = sum, expected_sum = sum, expected_last = sum;
  for (Index t = 0; t < 2 * d_k; ++t) {
    const Index i = t < d_k ? t : d.random().below(d_k);
    const Vec<T> key = axis(i), value = d.vector(d_v);
    sum += value * key.transpose();
    last += (value - last * key) * key.transpose();
    expected_sum.col(i) += value;
    expected_last.col(i) = value;
  }
  d.equal("F103", "linear attention recalls the sum of the values of a key", sum, expected_sum);
  d.equal("F103", "the delta rule recalls the last value of a key", last, expected_last);
  d.differs("F103", "which are different answers", sum, expected_last);
}

template void expressiveness(Derivation<Rational>&);
template void expressiveness(Derivation<Generic>&);

}  // namespace delta
