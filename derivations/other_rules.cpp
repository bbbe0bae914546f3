// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Relatives: Mesa, TTT, PaTH, Oja, Titans
//
// Five rules that look different are the delta rule in another place: with another write key,
// with a frozen gradient, on the logits, on the transposed state, on a state of twice the width.
// Each is one identity.

template <Field T> void other_rules(Derivation<T>& d) {
  const Index L = d.size("L", 4, 12), d_k = d.size("d_k", 2, 6), d_v = d.size("d_v", 2, 4);

  const Mat<T> Q = d.matrix(L, d_k), K = d.matrix(L, d_k);  // [L x d_k]
  const Mat<T> V = d.matrix(L, d_v);                        // [L x d_v]
  const Vec<T> beta = d.fractions(L);                       // [L]
  const T alpha = d.fraction(), eta = d.fraction();
  const auto key = [&](Index t) { return Vec<T>(K.row(t).transpose()); };
  const auto value = [&](Index t) { return Vec<T>(V.row(t).transpose()); };
  const Mat<T> I = Mat<T>::Identity(d_k, d_k);

  // ## 1. Mesa: recursive least squares
  //
  // The best memory in hindsight minimises sum_i |S k_i - v_i|^2 + lambda |S|^2. It is H_kv
  // (H_kk + lambda I)^{-1} with two states of linear attention. The claim: the delta rule that
  // reads with k and writes along R_t k, R_t = (H_kk + lambda I)^{-1}, keeps exactly this S.

  const T ridge(1);
  Mat<T> R = I, S = Mat<T>::Zero(d_v, d_k);  // R_0 = I / lambda
  Mat<T> H_kk = Mat<T>::Zero(d_k, d_k), H_kv = S;
  for (Index t = 0; t < 3; ++t) {
    const Vec<T> k = key(t), Rk = R * k;
    R -= Mat<T>(Rk * Rk.transpose()) / T(T(1) + k.dot(Rk));  // Sherman, Morrison
    const Vec<T> w = R * k;                                  // the write key
    S += (value(t) - S * k) * w.transpose();                 // delta rule, beta = 1
    H_kk += k * k.transpose();
    H_kv += value(t) * k.transpose();
    d.equal("D9", "R_t (H_kk + lambda I) = I", R * Mat<T>(H_kk + ridge * I), I);
    d.equal("D9", "Mesa: S_t (H_kk + lambda I) = H_kv, so S_t q = H_kv (H_kk + lambda I)^{-1} q",
            S * Mat<T>(H_kk + ridge * I), H_kv);
  }
  d.show("S", S, "H_kv", H_kv, "H_kk", H_kk);
  // Why: S_{t-1}(H_kk + k k^T + lambda I) = H_kv + (S_{t-1} k) k^T, so the correction must
  // satisfy C (H_kk,t + lambda I) = (v - S_{t-1} k) k^T.

  // With forgetting, H <- alpha H + ..., and a fixed lambda the identity breaks: the ridge would
  // have to decay too.

  Mat<T> Rf = I, Sf = Mat<T>::Zero(d_v, d_k), Hk = Mat<T>::Zero(d_k, d_k), Hv = Sf;
  for (Index t = 0; t < 2; ++t) {
    const Vec<T> k = key(t), Rk = Rf * k / alpha;
    Rf = Rf / alpha - Mat<T>(Rk * Rk.transpose()) / T(T(1) + k.dot(Rk));
    Sf += (value(t) - Sf * k) * Vec<T>(Rf * k).transpose();
    Hk = alpha * Hk + k * k.transpose();
    Hv = alpha * Hv + value(t) * k.transpose();
  }
  d.differs("D9", "Mesa with forgetting and a fixed ridge is not that recursion",
            Sf * Mat<T>(Hk + ridge * I), Hv);
  d.equal("D9", "it is, with a ridge that decays along: alpha^t lambda",
          Sf * Mat<T>(Hk + alpha * alpha * ridge * I), Hv);

  // ## 2. TTT: the gradient at the start of the block
  //
  // A linear model trained by gradient steps on mini-batches: all tokens of a block take their
  // gradient at the state with which the block began. In the chunk form this drops the
  // interactions, (I + L)^{-1} becomes I.

  const Index C = std::min<Index>(L, 4);
  const Mat<T> S0 = d.matrix(d_v, d_k);  // [d_v x d_k]
  Mat<T> ttt = S0, delta = S0;
  for (Index t = 0; t < C; ++t) {
    ttt -= beta[t] * (S0 * key(t) - value(t)) * key(t).transpose();       // gradient at S_0
    delta -= beta[t] * (delta * key(t) - value(t)) * key(t).transpose();  // gradient at S_{t-1}
  }
  const Mat<T> B = Vec<T>(beta.head(C)).asDiagonal(), Kc = K.topRows(C), Vc = V.topRows(C);
  const Mat<T> right = B * Mat<T>(Vc - Kc * S0.transpose());       // [C x d_v]
  const Mat<T> Lc = strictly_lower<T>(B * (Kc * Kc.transpose()));  // [C x C]
  d.equal("F47", "TTT on a block: S' = S + (I B (V - K S^T))^T K", S0 + right.transpose() * Kc,
          ttt);
  d.equal("F47", "DeltaNet on the block: S' = S + ((I + L)^{-1} B (V - K S^T))^T K",
          S0 + solve_unit_lower<T>(Lc, right).transpose() * Kc, delta);
  d.differs("D9", "they differ for blocks longer than one token", ttt, delta);
  d.equal("D9", "TTT with blocks of one token is DeltaNet",
          S0 - beta[0] * (S0 * key(0) - value(0)) * key(0).transpose(),
          S0 * Mat<T>(I - beta[0] * key(0) * key(0).transpose()) +
              beta[0] * value(0) * key(0).transpose());

  // ## 3. PaTH: transitions on the logits
  //
  // No state: the logit of the pair (i, j) is k_j^T P_{j+1} ... P_i q_i with P_t = I - beta_t w_t
  // w_t^T, then softmax. All logits at once come from the UT transform: tril(Q K^T) - tril(Q W^T)
  // (I + L)^{-1} sl(B W K^T).

  const Mat<T> Wk = d.matrix(L, d_k);  // [L x d_k]  row t is w_t
  Mat<T> logits = Mat<T>::Zero(L, L);
  for (Index i = 0; i < L; ++i) {
    Vec<T> probe = Q.row(i).transpose();
    for (Index j = i; j >= 0; --j) {
      logits(i, j) = K.row(j).dot(probe);
      const Vec<T> w = Wk.row(j).transpose();
      probe -= beta[j] * w.dot(probe) * w;  // P_j probe
    }
  }
  const Mat<T> Ball = beta.asDiagonal();
  const Mat<T> Lw = strictly_lower<T>(Ball * (Wk * Wk.transpose()));    // [L x L]
  const Mat<T> inner = strictly_lower<T>(Ball * (Wk * K.transpose()));  // [L x L]
  const Mat<T> by_ut =
      lower<T>(Q * K.transpose()) - lower<T>(Q * Wk.transpose()) * solve_unit_lower<T>(Lw, inner);
  d.show("logits", logits);
  d.equal("D9", "PaTH: logits = tril(Q K^T) - tril(Q W^T)(I + L)^{-1} sl(B W K^T)", by_ut,
          logits);

  // ## 4. Oja: the error of the key
  //
  // S <- Diag(g) S, then S <- S + v (beta (k - S^T v))^T. The value predicts the key. On R = S^T
  // that is the gated delta rule per channel with k and v exchanged.

  const Vec<T> g = d.fractions(d_v);  // [d_v]
  const Mat<T> start = d.matrix(d_v, d_k);
  Mat<T> oja = g.asDiagonal() * start;  // [d_v x d_k]
  oja += value(0) * Vec<T>(beta[0] * (key(0) - oja.transpose() * Mat<T>(value(0)))).transpose();
  Mat<T> swapped = start.transpose();  // [d_k x d_v]  R
  swapped = swapped * g.asDiagonal();
  swapped += beta[0] * (key(0) - swapped * value(0)) * value(0).transpose();
  d.equal("D9", "gated Oja is the delta rule on S^T with k and v exchanged", oja,
          swapped.transpose());

  // ## 5. Titans: momentum
  //
  // M <- (1 - a) M + Y, Y <- eta Y - theta (M k - v) k^T: gradient descent with momentum Y. On
  // the joint state J = [M | Y], d_v x 2 d_k, it is one step of the family with a decay of 2 x 2
  // blocks: J <- J D + z y^T, D = [[(1-a) I, 0], [eta I, eta I]], y = (k, k), z = theta v - J p,
  // p = (theta k, 0).

  const T forget = d.fraction(), theta = d.fraction();
  Mat<T> M = start, Y = d.matrix(d_v, d_k);
  Mat<T> J(d_v, 2 * d_k), D = Mat<T>::Zero(2 * d_k, 2 * d_k);
  J << M, Y;
  D.topLeftCorner(d_k, d_k) = (T(1) - forget) * I;
  D.bottomLeftCorner(d_k, d_k) = D.bottomRightCorner(d_k, d_k) = eta * I;
  for (Index t = 0; t < std::min<Index>(L, 4); ++t) {
    Y = eta * Y - theta * (M * key(t) - value(t)) * key(t).transpose();
    M = (T(1) - forget) * M + Y;

    Vec<T> p = Vec<T>::Zero(2 * d_k), y(2 * d_k);
    p.head(d_k) = theta * key(t);
    y << key(t), key(t);
    const Vec<T> z = theta * value(t) - J * p;
    J = J * D + Mat<T>(z * y.transpose());
    d.equal("D9", "Titans: the memory is the left half of the joint state", J.leftCols(d_k), M);
    d.equal("D9", "Titans: the momentum is the right half", J.rightCols(d_k), Y);
  }
}

template void other_rules(Derivation<Rational>&);
template void other_rules(Derivation<Generic>&);

}  // namespace delta
