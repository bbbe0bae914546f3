// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # One strength per value channel, and shapes that hide a transpose
//
// Some implementations give every value channel its own write strength b [d_v]:
//
//     S_t = alpha S + (b . (v - alpha S k)) k^T.
//
// Each row of the state, one per value channel, then obeys a delta rule of its own. There is no
// longer one transition matrix for the whole state.

template <Ring T> void per_value_beta(Derivation<T>& d) {
  const Index L = d.size("L", 3, 24), d_k = d.size("d_k", 3, 24), d_v = d.size("d_v", 2, 20);

  const Mat<T> K = d.matrix(L, d_k), V = d.matrix(L, d_v);  // [L x d_k], [L x d_v]
  const Vec<T> alpha = d.fractions(L);                      // [L]
  Mat<T> b(L, d_v);                                         // [L x d_v]
  for (Index t = 0; t < L; ++t) b.row(t) = d.fractions(d_v).transpose();
  b(0, 0) = T(1) / T(2), b(0, 1) = T(1) / T(3);  // two channels that differ
  const Mat<T> S0 = d.matrix(d_v, d_k);          // [d_v x d_k]
  d.show("b", b, "alpha", alpha, "S_0", S0);

  // ## 1. d_v rules with d_v = 1

  Mat<T> S = S0, rows = S0;
  for (Index t = 0; t < L; ++t) {
    const Vec<T> k = K.row(t).transpose(), v = V.row(t).transpose(),
                 strength = b.row(t).transpose();
    S *= alpha[t];
    const Vec<T> error = v - S * k;
    S += strength.cwiseProduct(error) * k.transpose();

    for (Index c = 0; c < d_v; ++c) {       // row c by itself, beta = b_c
      Mat<T> row = alpha[t] * rows.row(c);  // [1 x d_k]
      const T own_error = v[c] - row.row(0).dot(k);
      rows.row(c) = row + (strength[c] * own_error) * k.transpose();
    }
  }
  d.equal("F61", "the state is d_v independent rules with one value channel each", S, rows);

  // ## 2. No single matrix
  //
  // With one strength, equal rows and equal values stay equal rows: S -> S A treats all rows
  // alike. Start with two equal rows and equal targets, and watch them part:

  const Vec<T> k = K.row(0).transpose();
  Mat<T> equal_rows(2, d_k);
  equal_rows.row(0) = equal_rows.row(1) = S0.row(0);
  Vec<T> target(2), strength(2);
  target << V(0, 0), V(0, 0);
  strength << b(0, 0), b(0, 1);
  const Vec<T> error = target - equal_rows * k;
  const Mat<T> after = equal_rows + strength.cwiseProduct(error) * k.transpose();
  d.show("equal rows", equal_rows, "after one token", after);
  d.differs("F61", "equal rows become unequal, so no S A + u k^T with one A gives this",
            after.row(1), after.row(0));
  const Mat<T> one_strength = equal_rows + (strength[0] * error) * k.transpose();
  d.equal("F61", "with one strength they stay equal", one_strength.row(0), one_strength.row(1));

  // The forget gate remains one number for each head:

  d.shape("F62", "alpha has one entry a token, b has d_v",
          alpha.size() == L && b.rows() == L && b.cols() == d_v);
  if constexpr (ordered<T>)
    for (Index t = 0; t < L; ++t) {
      d.less("F62", "alpha in (0, 1): above 0", T(0), alpha[t]);
      d.less("F62", "alpha in (0, 1): below 1", alpha[t], T(1));
    }

  // ## 3. Which axis is summed
  //
  // Stored as d_k x d_v, the prediction sums over the key axis, the first; the update is the
  // outer product k delta^T. Exchanging the two gives delta k^T, the transpose. With d_k and d_v
  // different the shapes refuse.

  const Mat<T> stored = S0.transpose();  // [d_k x d_v]
  const Vec<T> delta = d.vector(d_v);
  const Vec<T> prediction = stored.transpose() * Mat<T>(k);  // sum over the key axis  [d_v]
  d.equal("F63", "the sum over the key axis is S k", prediction, S0 * k);
  d.shape("F63", "k delta^T is d_k x d_v, as stored",
          Mat<T>(k * delta.transpose()).rows() == stored.rows());
  d.shape("F63", "delta k^T is not, unless d_k = d_v",
          (d_k == d_v) == (Mat<T>(delta * k.transpose()).rows() == stored.rows()));

  // A square state accepts it:

  const Vec<T> key = d.vector(2), error2 = d.vector(2);
  const Mat<T> right = key * error2.transpose(), swapped = error2 * key.transpose();  // [2 x 2]
  d.show("k delta^T", right, "delta k^T", swapped);
  d.differs("F63", "square: the swapped outer product is another matrix", swapped, right);
  d.equal("F63", "its transpose", swapped, right.transpose());
}

template void per_value_beta(Derivation<Rational>&);
template void per_value_beta(Derivation<Generic>&);

}  // namespace delta
