// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Linear attention: a memory that is a sum of outer products, and its parallel form
//
// The memory is a matrix S [d_v x d_k]. Token t adds the outer product of its value and its key,
// and reads with its query:
//
//     S_t = S_{t-1} + v_t k_t^T,    o_t = S_t q_t,    S_0 = 0.
//
// The same outputs come out of two products of matrices and a mask, with no state at all.

template <Field T> void linear_attention(Derivation<T>& d) {
  const Index L = d.size("L", 4, 48), d_k = d.size("d_k", 3, 32), d_v = d.size("d_v", 2, 24);

  const Mat<T> Q = d.matrix(L, d_k);  // [L x d_k]  row t is q_t
  const Mat<T> K = d.matrix(L, d_k);  // [L x d_k]  row t is k_t
  const Mat<T> V = d.matrix(L, d_v);  // [L x d_v]  row t is v_t
  d.show("Q", Q, "K", K, "V", V);

  // ## 1. Token by token

  Mat<T> S = Mat<T>::Zero(d_v, d_k);  // [d_v x d_k]
  Mat<T> O(L, d_v);                   // [L x d_v]
  for (Index t = 0; t < L; ++t) {
    S += V.row(t).transpose() * K.row(t);
    O.row(t) = S * Vec<T>(Q.row(t).transpose());
  }
  d.show("S_L", S, "O", O);

  d.equal("F03", "S_L = sum_t v_t k_t^T = V^T K", S, V.transpose() * K);
  // Why: nothing is ever removed. Stacked as rows, the sum of outer products is a product.

  // ## 2. All tokens at once
  //
  // o_t = sum_{i <= t} v_i (k_i . q_t). The weight of value i in output t is the entry (t, i) of
  // Q K^T, and the causal mask M keeps i <= t.

  const Mat<T> QK = Q * K.transpose();  // [L x L]  entry (t, i) is q_t . k_i
  const Mat<T> masked = lower<T>(QK);   // [L x L]  Q K^T . M
  d.show("Q K^T", QK, "Q K^T . M", masked);

  Mat<T> by_sum = Mat<T>::Zero(L, d_v);
  for (Index t = 0; t < L; ++t)
    for (Index i = 0; i <= t; ++i) by_sum.row(t) += K.row(i).dot(Q.row(t)) * V.row(i);
  d.equal("F04", "o_t = sum_{i<=t} (k_i . q_t) v_i", by_sum, O);
  d.equal("F04", "O = (Q K^T . M) V", masked * V, O);
  // Why: S_t q_t = sum_{i<=t} v_i (k_i^T q_t), because S_t is that sum. The diagonal of M is
  // kept: the token has written before it reads.

  // ## 3. What the mask forbids
  //
  // Without a mask the product is associative, and Q (K^T V) costs L d^2 where (Q K^T) V costs
  // L^2 d.

  d.equal("F05", "(Q K^T) V = Q (K^T V)", QK * V, Q * (K.transpose() * V));
  d.equal("F05", "K^T V = S_L^T: the product is the state, transposed", K.transpose() * V,
          S.transpose());

  // The mask sits between the two products and does not let them be regrouped:

  d.differs("F05", "causal attention is not Q (K^T V)", Q * (K.transpose() * V), O);
  // Why: an entry-wise product does not commute with a product of matrices. Q (K^T V) lets every
  // token read what later tokens have written. Only the last row is right, t = L sees everything.

  const Mat<T> last = (Q * (K.transpose() * V)).bottomRows(1);
  d.equal("F05", "the last row agrees", last, O.bottomRows(1));

  // ## 4. The normalised form
  //
  // With a feature map phi > 0 the weights are divided by their sum, which is a second, smaller
  // state z_t = sum_{i<=t} phi(k_i): o_t = S_t phi(q_t) / (z_t . phi(q_t)). Any phi will do for
  // the algebra; phi(x) = 1 + x^2, entry by entry, is positive and stays exact.

  const auto phi = [](const Mat<T>& x) { return Mat<T>(x.cwiseProduct(x).array() + T(1)); };
  const Mat<T> fQ = phi(Q), fK = phi(K);  // [L x d_k]
  Mat<T> S_phi = Mat<T>::Zero(d_v, d_k);
  Vec<T> z = Vec<T>::Zero(d_k);
  Mat<T> read(L, d_v), weighted = Mat<T>::Zero(L, d_v);  // [L x d_v]
  Vec<T> norm(L), total = Vec<T>::Zero(L);               // [L]
  for (Index t = 0; t < L; ++t) {
    S_phi += V.row(t).transpose() * fK.row(t);
    z += fK.row(t).transpose();
    const Vec<T> q = fQ.row(t).transpose();
    read.row(t) = S_phi * q;
    norm[t] = z.dot(q);
    for (Index i = 0; i <= t; ++i) {
      const T weight = fK.row(i).dot(fQ.row(t));  // before its division by the norm
      weighted.row(t) += weight * V.row(i);
      total[t] += weight;
    }
  }
  d.equal("F02", "S phi(q) = sum over i <= t of (phi(k_i) . phi(q)) v_i", read, weighted);
  d.equal("F02", "z . phi(q) = the sum of these weights", norm, total);
  d.equal("F02", "so the weights of one output, divided by z . phi(q), sum to 1",
          T(total[L - 1] / norm[L - 1]), T(1));
  // Why: the products with phi(q) distribute over the two running sums. phi > 0 makes each weight
  // positive and the norm not zero.
}

template void linear_attention(Derivation<Rational>&);
template void linear_attention(Derivation<Generic>&);

}  // namespace delta
