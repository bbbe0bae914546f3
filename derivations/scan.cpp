// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # The scan: updates are affine maps, and affine maps compose
//
// Every rule of the family is S -> S A + U with A [d_k x d_k] and U [d_v x d_k] that depend on
// the token alone. Two such maps make a third, so a sequence can be combined in any grouping, a
// tree for instance. Not in any order.

// S -> S A + U
template <Ring T> struct Affine {
  Mat<T> A, U;  // [d_k x d_k], [d_v x d_k]
};

// first, then second: (S A_1 + U_1) A_2 + U_2 = S (A_1 A_2) + (U_1 A_2 + U_2)
template <Ring T> Affine<T> then(const Affine<T>& first, const Affine<T>& second) {
  return {first.A * second.A, first.U * second.A + second.U};
}

template <Ring T> void scan(Derivation<T>& d) {
  const Index L = d.size("L", 5, 16), d_k = d.size("d_k", 3, 16), d_v = d.size("d_v", 2, 12);

  const Mat<T> K = d.matrix(L, d_k), V = d.matrix(L, d_v);     // [L x d_k], [L x d_v]
  const Vec<T> beta = d.fractions(L), alpha = d.fractions(L);  // [L]
  const Mat<T> S0 = d.matrix(d_v, d_k);                        // [d_v x d_k]
  const Mat<T> I = Mat<T>::Identity(d_k, d_k);

  // ## 1. The steps of the gated delta rule as maps

  std::vector<Affine<T>> step;
  for (Index t = 0; t < L; ++t)
    step.push_back({alpha[t] * Mat<T>(I - beta[t] * K.row(t).transpose() * K.row(t)),
                    beta[t] * V.row(t).transpose() * K.row(t)});
  std::vector<Mat<T>> S{S0};
  for (Index t = 0; t < L; ++t) S.push_back(S[t] * step[t].A + step[t].U);
  d.show("A_1", step[0].A, "U_1", step[0].U, "S_L", S[L]);

  // ## 2. Grouping is free

  const Affine<T> left = then(then(step[0], step[1]), step[2]);
  const Affine<T> right = then(step[0], then(step[1], step[2]));
  d.equal("F59", "(f1 f2) f3 = f1 (f2 f3): the transitions", left.A, right.A);
  d.equal("F59", "(f1 f2) f3 = f1 (f2 f3): the writes", left.U, right.U);

  // A tree: combine neighbours, then neighbours of neighbours. Every prefix comes out (Hillis,
  // Steele).

  std::vector<Affine<T>> prefix = step;
  for (Index hop = 1; hop < L; hop *= 2)
    for (Index t = L - 1; t >= hop; --t) prefix[t] = then(prefix[t - hop], prefix[t]);
  for (Index t = 0; t < L; ++t)
    d.equal("F59", "the tree gives every state: S_t = S_0 A_{1..t} + U_{1..t}",
            S0 * prefix[t].A + prefix[t].U, S[t + 1]);

  // Order is not free:

  d.differs("F59", "f2 before f1 is another map", then(step[1], step[0]).U,
            then(step[0], step[1]).U);

  // ## 3. Unrolled
  //
  //     S_L = S_0 A_1 ... A_L + sum_i U_i A_{i+1} ... A_L.

  Mat<T> unrolled = Mat<T>::Zero(d_v, d_k), tail = I;  // tail = A_{i+1} ... A_L, empty product I
  for (Index i = L - 1; i >= 0; --i) {
    unrolled += step[i].U * tail;
    tail = step[i].A * tail;
  }
  d.equal("F60", "S_L = S_0 A_1 ... A_L + sum_i U_i A_{i+1} ... A_L", S0 * tail + unrolled, S[L]);

  // Where the state is stored transposed, d_k x d_v, the maps act from the left, S_t = A_t
  // S_{t-1} + U_t, and the product must descend, A_L A_{L-1} ... A_{i+1}. Written with bounds
  // from t down to i + 1, it is easily read upwards:

  Mat<T> descending = Mat<T>::Zero(d_k, d_v), ascending = descending;
  for (Index i = 0; i < L; ++i) {
    Mat<T> down = I, up = I;
    for (Index j = i + 1; j < L; ++j) {
      down = step[j].A.transpose() * down;      // A_L ... A_{i+1}
      up = up * Mat<T>(step[j].A.transpose());  // A_{i+1} ... A_L
    }
    descending += down * Mat<T>(step[i].U.transpose());
    ascending += up * Mat<T>(step[i].U.transpose());
  }
  d.equal("E14", "left form, descending product: the same state, transposed", descending,
          unrolled.transpose());
  d.differs("E14", "left form, ascending product: another state", ascending,
            unrolled.transpose());

  // ## 4. The members of the family
  //
  // S_t = S_{t-1} o M_t + (a write): o is the product of matrices or the entry-wise product.

  const Vec<T> k = K.row(0).transpose(), v = V.row(0).transpose();
  const Vec<T> channels = d.fractions(d_k);
  const T a = alpha[0], b = beta[0];
  const Mat<T> write = v * k.transpose();
  d.equal("F44", "linear attention: M = I", S0 * I + write, S0 + write);
  d.equal("F44", "RetNet, Mamba2: M = alpha I, or entry-wise with a constant matrix",
          S0 * Mat<T>(a * I) + write, S0.cwiseProduct(Mat<T>::Constant(d_v, d_k, a)) + write);
  d.equal("F44", "GLA: entry-wise with 1 d^T, or M = diag(d)",
          S0.cwiseProduct(Mat<T>(Vec<T>::Ones(d_v) * channels.transpose())) + write,
          S0 * Mat<T>(channels.asDiagonal()) + write);
  const Mat<T> delta = S0 + b * (v - S0 * k) * k.transpose();
  const Mat<T> M = I - b * k * k.transpose();
  d.equal("F44", "DeltaNet: M = I - beta k k^T, and the write is beta v k^T", S0 * M + b * write,
          delta);
  d.differs("F44", "DeltaNet with the write v k^T loses a beta", S0 * M + write, delta);
}

template void scan(Derivation<Rational>&);
template void scan(Derivation<Generic>&);

}  // namespace delta
