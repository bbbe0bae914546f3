// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

#include <cmath>

namespace delta {

// # Every rule is the same three lines
//
// Forget, predict, correct:
//
//     S <- S diag(d),    e = v - S x,    S <- S + beta e y^T.
//
// Rules differ in d (nothing, a number, one number per key channel), in what reads (x), in what
// is written along (y), in when the prediction is read, and in how many such steps a token takes.
// Here each rule stands as its source prints it, beside these three lines.

template <Field T> void family(Derivation<T>& d) {
  const Index d_k = d.size("d_k", 3, 24), d_v = d.size("d_v", 2, 16);

  const Mat<T> S = d.matrix(d_v, d_k),
               I = Mat<T>::Identity(d_k, d_k);        // [d_v x d_k], [d_k x d_k]
  const Vec<T> k = d.vector(d_k), v = d.vector(d_v);  // [d_k], [d_v]
  const Vec<T> a = d.fractions(d_k);                  // [d_k]  a decay per channel
  const T alpha = d.fraction(), beta = d.fraction();
  const Mat<T> D = a.asDiagonal();  // [d_k x d_k]
  d.show("S", S, "k", k, "v", v, "a", a, "alpha", alpha, "beta", beta);

  // ## 1. A decay per key channel: GLA and KDA
  //
  // Without a prediction (x = 0) this is gated linear attention; with x = y = k it is Kimi Delta
  // Attention.

  Mat<T> forgotten = S * a.asDiagonal();  // [d_v x d_k]  S diag(d)
  Mat<T> gla = forgotten;
  gla += v * k.transpose();
  d.equal("C-gla", "GLA: S D + v k^T", gla, S * D + v * k.transpose());

  Mat<T> kda = forgotten;
  kda += beta * (v - kda * k) * k.transpose();
  d.equal("C-kda", "KDA: S D (I - beta k k^T) + beta v k^T", kda,
          S * Mat<T>(D * Mat<T>(I - beta * k * k.transpose())) + beta * v * k.transpose());
  d.differs("C-kda", "its transition is not (I - beta k k^T) D: first decay, then read",
            S * Mat<T>(Mat<T>(I - beta * k * k.transpose()) * D) + beta * v * k.transpose(), kda);

  // ## 2. Gates on what is erased and on what is written: Gated DeltaNet-2
  //
  // b gates the key of the prediction, w the value. So x = b . k, the target is w . v, beta = 1.

  const Vec<T> b = d.fractions(d_k), w = d.fractions(d_v);
  const Vec<T> x = b.cwiseProduct(k), target = w.cwiseProduct(v);
  Mat<T> gdn2 = forgotten;
  gdn2 += (target - gdn2 * x) * k.transpose();
  d.equal("C-gdn2", "GDN-2: S D (I - (b . k) k^T) + (w . v) k^T", gdn2,
          S * Mat<T>(D * Mat<T>(I - x * k.transpose())) + target * k.transpose());

  // ## 3. Another write key: preconditioned delta rule
  //
  // k predicts and y = M k is written along, M a diagonal matrix made from the past.

  const Vec<T> M = d.fractions(d_k), y = M.cwiseProduct(k);
  Mat<T> precond = forgotten;
  precond += beta * (v - precond * k) * y.transpose();
  d.equal("C-precond-delta", "S D (I - beta k y^T) + beta v y^T with y = M k", precond,
          S * Mat<T>(D * Mat<T>(I - beta * k * y.transpose())) + beta * v * y.transpose());

  // ## 4. Reading before the decay: Comba
  //
  // The prediction S p is read from the state that has not decayed yet.

  const Vec<T> p = d.vector(d_k);
  const Vec<T> early = v - S * p;  // [d_v]
  Mat<T> comba = alpha * S;
  comba += beta * early * k.transpose();
  d.equal("C-comba", "Comba: alpha S - beta (S p) k^T + beta v k^T", comba,
          alpha * S - beta * (S * p) * k.transpose() + beta * v * k.transpose());
  d.differs("C-comba", "read after the decay it is another rule",
            alpha * S - beta * (alpha * (S * p)) * k.transpose() + beta * v * k.transpose(),
            comba);
  d.equal("C-comba", "p = alpha k is the gated delta rule",
          alpha * S - beta * (S * Vec<T>(alpha * k)) * k.transpose() + beta * v * k.transpose(),
          alpha * S * Mat<T>(I - beta * k * k.transpose()) + beta * v * k.transpose());

  // ## 5. Two steps a token: DeltaProduct, RWKV-7, Mamba-3
  //
  // DeltaProduct decays once and takes several delta steps; products ascend.

  const Vec<T> k2 = d.vector(d_k), v2 = d.vector(d_v);
  const T beta2 = d.fraction();
  const Mat<T> A1 = I - beta * k * k.transpose(), A2 = I - beta2 * k2 * k2.transpose();
  Mat<T> product = alpha * S;
  product += beta * (v - product * k) * k.transpose();
  product += beta2 * (v2 - product * k2) * k2.transpose();
  const Mat<T> U1 = beta * v * k.transpose(), U2 = beta2 * v2 * k2.transpose();
  d.equal("C-delta-product",
          "DeltaProduct: alpha S A_1 A_2 + beta_1 v_1 k_1^T A_2 + beta_2 v_2 k_2^T", product,
          alpha * S * Mat<T>(A1 * A2) + U1 * A2 + U2);
  d.differs("C-delta-product", "A_2 A_1 for A_1 A_2 is another state",
            alpha * S * Mat<T>(A2 * A1) + U1 * A2 + U2, product);

  // RWKV-7 erases along one key and writes along another. Its first step reads kappa before the
  // decay and takes it away along a . kappa; the second only writes.

  const Vec<T> kappa = d.vector(d_k), rate = d.fractions(d_k), along = rate.cwiseProduct(kappa);
  Mat<T> rwkv7 = S * a.asDiagonal();
  rwkv7 += (Vec<T>::Zero(d_v) - S * kappa) * along.transpose();
  rwkv7 += v * k.transpose();
  d.equal("C-rwkv7", "RWKV-7: S (D - kappa (a . kappa)^T) + v k^T", rwkv7,
          S * Mat<T>(D - kappa * along.transpose()) + v * k.transpose());

  // Mamba-3 writes the previous pair once more, a trapezoid where Mamba-2 takes a rectangle.

  const T gamma = d.fraction();
  Mat<T> mamba3 = alpha * S;
  mamba3 += beta * v2 * k2.transpose();  // (v2, k2) is the pair of the token before
  mamba3 += gamma * v * k.transpose();
  d.equal("C-mamba3", "Mamba-3: alpha S + beta v_{t-1} k_{t-1}^T + gamma v_t k_t^T", mamba3,
          S * Mat<T>(alpha * I) + beta * v2 * k2.transpose() + gamma * v * k.transpose());

  // ## 6. Only another strength: Kaczmarz, EFLA, Longhorn
  //
  // n = |k|^2. The delta rule leaves 1 - beta n of the error under the key. Kaczmarz leaves nothing,
  // Longhorn 1 / (1 + beta n), EFLA exp(-beta n).

  const T n = k.dot(k);
  const auto left = [&](const T& strength) {  // the error after a step of this strength [d_v]
    return Vec<T>(v - Mat<T>(S + strength * (v - S * k) * k.transpose()) * k);
  };
  const Vec<T> error = v - S * k;
  d.equal("C-kaczmarz", "strength 1 / n leaves no error", left(T(1) / n), T(0) * error);
  d.equal("C-longhorn", "strength beta / (1 + beta n) leaves 1 / (1 + beta n) of it",
          left(beta / (T(1) + beta * n)), T(T(1) / (T(1) + beta * n)) * error);

  // EFLA follows dS/ds = (v - S k) k^T for a time beta. With E for exp(-beta n) its strength is
  // (1 - E) / n. A flow for two times is one flow for their sum, E_1 E_2, which no other strength
  // with this property can be but an exponential:

  const T E1 = d.fraction(), E2 = d.fraction();
  const Mat<T> once = S + (T(1) - E1) / n * (v - S * k) * k.transpose();
  const Mat<T> twice = once + (T(1) - E2) / n * (v - once * k) * k.transpose();
  d.equal("C-efla", "strength (1 - E) / n leaves E of it", left((T(1) - E1) / n), E1 * error);
  d.equal("C-efla", "flows compose: E_1, then E_2, is E_1 E_2", twice,
          S + (T(1) - E1 * E2) / n * (v - S * k) * k.transpose());
  d.near("C-efla",
         "small steps of the delta rule tend to it: (1 - 0.5 / 10^6)^(10^6) = exp(-0.5)",
         std::pow(1 - 0.5e-6, 1e6), std::exp(-0.5), 1e-6);
}

template void family(Derivation<Rational>&);
template void family(Derivation<Generic>&);

}  // namespace delta
