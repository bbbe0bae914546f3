// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Capacity: what a sum of outer products remembers, and what it confuses
//
// Writing is S += v k^T, reading is S k. Reading back what was written returns the value plus
// what every other key leaks into it, (k_i . k) v_i. Only orthogonal keys do not leak, and there
// are no more of them than the key has channels.

// The rank of a matrix, by elimination. Exact: an entry is zero or it is not.
template <Field T> Index rank_of(Mat<T> A) {
  Index rank = 0;
  for (Index j = 0; j < A.cols() && rank < A.rows(); ++j) {
    Index pivot = rank;
    while (pivot < A.rows() && A(pivot, j) == T(0)) ++pivot;
    if (pivot == A.rows()) continue;
    A.row(pivot).swap(A.row(rank));
    for (Index i = rank + 1; i < A.rows(); ++i)
      A.row(i) -= (A(i, j) / A(rank, j)) * Mat<T>(A.row(rank));
    ++rank;
  }
  return rank;
}

template <Field T> void capacity(Derivation<T>& d) {
  const Index d_k = d.size("d_k", 3, 24), d_v = d.size("d_v", 2, 20);

  // ## 1. Orthonormal keys read back exactly
  //
  // The columns of a reflection I - 2 w w^T / |w|^2 are orthonormal, and its entries are
  // rational.

  const Vec<T> w = d.vector(d_k);
  const Mat<T> R = Mat<T>::Identity(d_k, d_k) - (T(2) / w.dot(w)) * (w * w.transpose());
  const Mat<T> V = d.matrix(d_k, d_v);  // [d_k x d_v]  one value for each key
  Mat<T> S = Mat<T>::Zero(d_v, d_k);
  for (Index i = 0; i < d_k; ++i) S += V.row(i).transpose() * R.row(i);
  d.show("keys (rows)", R, "V", V, "S", S);

  d.equal("F06", "the keys are orthonormal", R * R.transpose(), Mat<T>::Identity(d_k, d_k));
  d.equal("F06", "S k_i = v_i for each of d_k orthonormal keys", R * S.transpose(), V);
  // Why: S k_j = sum_i v_i (k_i . k_j), and k_i . k_j is 1 or 0.

  // ## 2. Other keys leak, and equal keys add

  const Vec<T> k = d.vector(d_k), k2 = d.vector(d_k), v = d.vector(d_v), v2 = d.vector(d_v);
  const Mat<T> both = v * k.transpose() + v2 * k2.transpose();  // [d_v x d_k]
  const Mat<T> twice = v * k.transpose() + v2 * k.transpose();

  d.equal("F06", "S k = v |k|^2 + (k_2 . k) v_2: the leak", both * k,
          k.dot(k) * v + k2.dot(k) * v2);
  d.differs("F06", "with overlapping keys, the value does not come back", both * k, k.dot(k) * v);
  d.equal("F06", "the same key twice: the values add", twice * k, k.dot(k) * (v + v2));
  d.differs("F06", "so the second write does not replace the first", twice * k, k.dot(k) * v2);

  // ## 3. No more than d_k keys are orthogonal
  //
  // N keys with mutual products zero have a diagonal Gram matrix of rank N. But K K^T has at most
  // the rank of K, and K has d_k columns.

  const Index N = d_k + 2;
  const Mat<T> K = d.matrix(N, d_k);  // [N x d_k]
  d.holds("F07", "rank(K K^T) <= d_k, however many keys there are",
          rank_of<T>(K * K.transpose()) <= d_k);

  // How small can the largest overlap be? For N keys the sum of all squared cosines is at least
  // N^2 / d (Welch): the Gram matrix of unit keys has trace N and at most d eigenvalues, and (sum
  // of d numbers)^2 <= d (sum of their squares). The N diagonal terms are 1, so some pair has
  //
  //     cos^2 >= (N - d) / (d (N - 1)).

  if constexpr (ordered<T>) {
    // The largest squared cosine of two different keys.
    const auto worst = [](const Mat<T>& keys) {
      T most(0);
      for (Index i = 0; i < keys.rows(); ++i)
        for (Index j = 0; j < i; ++j) {
          const T dot = keys.row(i).dot(keys.row(j));
          most = std::max<T>(
              most, dot * dot / (keys.row(i).dot(keys.row(i)) * keys.row(j).dot(keys.row(j))));
        }
      return most;
    };
    const auto welch = [](Index n, Index dim) { return T(int(n - dim)) / T(int(dim * (n - 1))); };
    d.at_most("F07", "(N - d) / (d (N - 1)) <= max cos^2", welch(N, d_k), worst(K));
  }

  // Equality: the four corners of a tetrahedron, N = 4, d = 3. Every pair has the same overlap.

  Mat<T> corners(4, 3);
  corners << T(1), T(1), T(1), T(1), T(-1), T(-1), T(-1), T(1), T(-1), T(-1), T(-1), T(1);
  for (Index i = 0; i < 4; ++i)
    for (Index j = 0; j < i; ++j) {
      const T dot = corners.row(i).dot(corners.row(j));
      d.equal("F07", "attained by the tetrahedron: cos^2 = (4 - 3) / (3 (4 - 1)) = 1/9",
              T(dot * dot / (T(3) * T(3))), T(1) / T(9));
    }

  // ## 4. A coordinate key reads one column
  //
  // The state is stored d_v x d_k here; where it is stored the other way round, that column is a
  // row.

  Vec<T> e = Vec<T>::Zero(d_k);
  e[1] = T(1);
  d.equal("F08", "S e_j is column j of S", both * e, both.col(1));
  Vec<T> mix = Vec<T>::Zero(d_v);
  for (Index j = 0; j < d_k; ++j) mix += k2[j] * both.col(j);
  d.equal("F08", "a general key mixes all columns", both * k2, mix);

  // ## 5. Two histories, one state
  //
  // The memory has d_v d_k numbers whatever the length of the history, so histories must collide.
  // These two wrote different keys and different values:

  Vec<T> a = Vec<T>::Zero(d_k), b = Vec<T>::Zero(d_k);
  a[0] = b[0] = a[1] = T(1), b[1] = T(-1);
  Vec<T> e0 = Vec<T>::Zero(d_k), e1 = Vec<T>::Zero(d_k);
  e0[0] = e1[1] = T(1);
  const Vec<T> sum = (v + v2) / T(2), difference = (v - v2) / T(2);
  const Mat<T> first = v * e0.transpose() + v2 * e1.transpose();
  const Mat<T> second = sum * a.transpose() + difference * b.transpose();
  d.show("first", first, "second", second);
  d.equal("F09", "v e_1^T + v' e_2^T = (v+v')/2 (e_1+e_2)^T + (v-v')/2 (e_1-e_2)^T", first,
          second);

  // No later query can tell them apart. Attention that keeps its keys can: with the weights
  // (k . q)^2 instead of (k . q), so that they are not linear in the key, the two histories
  // answer differently.

  const Vec<T> q = d.vector(d_k);
  const auto weigh = [&](const Vec<T>& key) { return T(key.dot(q) * key.dot(q)); };
  d.differs("F09", "a kernel that is not linear tells the two histories apart",
            weigh(a) * sum + weigh(b) * difference, weigh(e0) * v + weigh(e1) * v2);
}

template void capacity(Derivation<Rational>&);
template void capacity(Derivation<Generic>&);

}  // namespace delta
