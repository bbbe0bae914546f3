// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Chunks and arrows: half recurrent, half parallel
//
// The recurrence is serial in L, the masked form is quadratic in L. Cut the sequence into chunks
// of C tokens: between chunks the state is carried, inside a chunk everything is a product of
// matrices. With decay, every quantity needs to be moved to the start or to the end of its chunk.
// The arrow says where to: Q<- is decayed back to the chunk's start, K-> forward to its end, S->
// across it.

template <Field T> void chunk_arrows(Derivation<T>& d) {
  const Index L = d.size("L", 5, 40), d_k = d.size("d_k", 3, 24), d_v = d.size("d_v", 2, 20);

  const Mat<T> Q = d.matrix(L, d_k), K = d.matrix(L, d_k);  // [L x d_k]
  const Mat<T> V = d.matrix(L, d_v);                        // [L x d_v]
  const Vec<T> alpha = d.fractions(L);                      // [L]
  const Mat<T> S0 = d.matrix(d_v, d_k);                     // [d_v x d_k]

  // ## 1. What the chunks must reproduce: the recurrence, without decay and with it

  Mat<T> S_plain = S0, S_decayed = S0;
  Mat<T> O_plain(L, d_v), O_decayed(L, d_v);
  for (Index t = 0; t < L; ++t) {
    const Vec<T> q = Q.row(t).transpose();
    S_plain += V.row(t).transpose() * K.row(t);
    S_decayed = alpha[t] * S_decayed + V.row(t).transpose() * K.row(t);
    O_plain.row(t) = S_plain * q;
    O_decayed.row(t) = S_decayed * q;
  }
  d.show("S_L without decay", S_plain, "S_L with decay", S_decayed);

  // ## 2. Chunks of every length, the last one shorter where C does not divide L

  for (Index C : {Index(1), Index(2), Index(3), L / 2, L}) {
    Mat<T> S = S0, S_g = S0;  // the carried states
    for (Index begin = 0; begin < L; begin += C) {
      const Index c = std::min(C, L - begin);
      const Mat<T> q = Q.middleRows(begin, c), k = K.middleRows(begin, c);  // [c x d_k]
      const Mat<T> v = V.middleRows(begin, c);                              // [c x d_v]
      const Vec<T> a = alpha.segment(begin, c);                             // [c]
      const Mat<T> qk = q * k.transpose();                                  // [c x c]

      // Without decay: what came before the chunk is read from the carried state, what happened
      // inside is the masked product.

      const Mat<T> O = q * S.transpose() + lower<T>(qk) * v;  // [c x d_v]
      S += v.transpose() * k;                                 // [d_v x d_k]
      d.equal("F14", "O = Q S^T + (Q K^T . M) V, every C", O, O_plain.middleRows(begin, c));

      // With decay, gamma^r counts from the chunk's start only, and H holds the decays between
      // the rows.

      Vec<T> gamma = a;                   // [c]      gamma^r = a_1 ... a_r
      Mat<T> H = Mat<T>::Identity(c, c);  // [c x c]
      for (Index i = 1; i < c; ++i) {
        gamma[i] *= gamma[i - 1];
        H.row(i).head(i) = a[i] * H.row(i - 1).head(i);
      }
      const Mat<T> Q_in = gamma.asDiagonal() * q;          // [c x d_k]  Q<-
      const Mat<T> K_out = H.row(c - 1).asDiagonal() * k;  // [c x d_k]  K->
      const Mat<T> S_out = gamma[c - 1] * S_g;             // [d_v x d_k]  S->
      if (C == 3 && begin == 0) d.show("gamma", gamma, "H", H, "Q<-", Q_in, "K->", K_out);

      const Mat<T> O_g = Q_in * S_g.transpose() + H.cwiseProduct(qk) * v;  // [c x d_v]
      S_g = S_out + v.transpose() * K_out;                                 // [d_v x d_k]
      d.equal("F16", "O = Q<- S^T + (Q K^T . H) V, every C", O_g, O_decayed.middleRows(begin, c));

      T before(1);  // gamma at the chunk's start, over the whole sequence
      for (Index t = 0; t < begin; ++t) before *= alpha[t];
      Vec<T> ratio(c);
      T now = before;
      for (Index r = 0; r < c; ++r) ratio[r] = (now *= a[r]) / before;
      d.equal("F15", "gamma^r = gamma_{tC+r} / gamma_{tC}, a ratio of global products", ratio,
              gamma);

      // The same chunk with tokens as columns: every product is transposed and nothing else
      // changes.

      const Mat<T> qt = q.transpose(), kt = k.transpose(), vt = v.transpose();  // [d x c]
      const Mat<T> scores = H.transpose().cwiseProduct(kt.transpose() * qt);    // [c x c]
      d.equal("F17", "tokens as columns: V^T (H^T . K Q^T) is the transpose of (H . Q K^T) V",
              vt * scores, (H.cwiseProduct(qk) * v).transpose());
      d.equal("F17", "tokens as columns: V K^T is V^T K of the rows", vt * kt.transpose(),
              v.transpose() * k);
    }
    d.equal("F14", "S' = S + V^T K, every C", S, S_plain);
    d.equal("F16", "S' = S-> + V^T K->, every C", S_g, S_decayed);
  }
  // Why: unroll the recurrence from the chunk's start to row r. What the state brought in has
  // decayed by gamma^r, the write of row j by H_rj. At r = c that is S-> and K->; read with q_r
  // it is Q<- and H.
}

template void chunk_arrows(Derivation<Rational>&);
template void chunk_arrows(Derivation<Generic>&);

}  // namespace delta
