// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Errata: each printed form beside the right one, with the smallest witness
//
// What follows is printed somewhere, in a paper, in notes or in code. Each is run on the smallest
// integers that tell it from the right form. If one of these claims failed, the printed form
// would be right after all, and the tests would say so.

void errata(Derivation<Rational>& d) {
  using T = Rational;
  const auto mat = [](Index rows, Index cols, std::initializer_list<int> entries) {
    Mat<T> M(rows, cols);
    Index i = 0;
    for (int e : entries) M(i / cols, i % cols) = e, ++i;
    return M;
  };

  // ## S for S^T (E1, F39, F86)
  //
  // Q S and W S, with S [d_v x d_k]: right only where S means the transposed state. One token,
  // d = 2.

  const Mat<T> S = mat(2, 2, {0, 1, 0, 0}), q = mat(1, 2, {1, 0}), w = q;
  d.show("S", S, "q", q, "q S^T", q * S.transpose(), "q S", q * S);
  d.differs("E1", "Q S, for Q S^T, reads something else", q * S, q * S.transpose());
  d.differs("F86", "W S, for W S^T, is something else", w * S, w * S.transpose());
  d.shape("E1", "with d_v = 1, d_k = 2 the product Q S [1 x 2][1 x 2] does not exist",
          q.cols() != S.topRows(1).rows());

  // ## A without beta_j, beside T with it (E2)
  //
  // One token, k = q = 1, beta = 2, v = 1: the output is beta v (k . q) = 2.

  const T beta(2), one(1);
  d.differs("E2", "A_11 = k^T q is not (Q K^T . M) T", one, T(one * beta));

  // ## v_old as a sum of values (E3)
  //
  // k = 1 for all tokens, v = 1, 2, beta = 1. Linear attention holds 1 + 2. The delta rule holds
  // 2: its sum runs over the pseudo-values u = 1, 1.

  const T u1 = 1, u2 = 2 - u1;
  d.equal("E3", "linear attention: S k = sum v_i (k_i . k) = 3", T(T(1) + T(2)), T(3));
  d.differs("E3", "the delta rule does not hold sum v_i (k_i . k) but sum u_i (k_i . k)",
            T(1 + 2), T(u1 + u2));

  // ## Erased exactly (E8)
  //
  // (I - beta k k^T) k = (1 - beta |k|^2) k is zero only for beta |k|^2 = 1. beta = 1, k = 2:

  d.differs("E8", "I - k k^T does not project k = 2 to zero", T((1 - T(2) * 2) * 2), T(0));

  // ## The write without beta (E10)
  //
  // S_t = S M_t + v k^T covers DeltaNet only with beta v. S = 0, k = v = 1, beta = 2:

  d.differs("E10", "v k^T is not DeltaNet's write, beta v k^T", one, T(beta * one));

  // ## One letter for the bound and the index (E11)
  //
  // gamma^j = prod_j alpha_j. Read with the free index fixed, it is one factor; read as a product
  // over all j, it does not depend on the row. alpha = 2, 3, 5, row 2:

  d.equal("E11", "meant: the product up to the row, 2 x 3", T(T(2) * 3), T(6));
  d.differs("E11", "the product over the whole chunk is another number", T(T(2) * 3 * 5), T(6));
  d.differs("E11", "the factor of that row is another number", T(3), T(6));

  // And the rows tC+1 : (t+1)C+1 of a chunk are a half-open range; with both ends there is one
  // row too many.

  d.differs("E11", "C = 4, t = 0: the rows 1 .. 5, with both ends, are not 4 tokens",
            T(5 - 1 + 1), T(4));
  d.equal("E11", "half open, 4 tokens", T(5 - 1), T(4));

  // ## A gradient step with its index shifted (E12)
  //
  // S_{t+1} = S_t - beta_t grad_t(S_t) stands beside o_t = S_t q_t. Then token t is not in the
  // state that it reads. S = 0, k = v = q = beta = 1:

  d.differs("E12", "with the shifted index o_1 = S_1 q_1 does not see the first write", T(0),
            one);
  d.shape("E12", "the outputs [C x d_o] have d_v columns: d_o is d_v",
          mat(1, 3, {1, 1, 1}).cols() == 3);

  // ## Gradient descent plus weight decay (E13)
  //
  // S = 2, k = 1, v = 0, beta = 1, alpha = 1/2. Gradient at alpha S: 1 - 1 = 0. Gradient at S: 1
  // - 2 = -1.

  const T alpha = T(1) / 2;
  d.differs("E13", "decoupled weight decay is not the gated rule", T(alpha * 2 - 2),
            T(alpha * 2 - alpha * 2));

  // ## A product with descending bounds (E14)
  //
  // prod_{j=t}^{i+1} A_j acts from the left and means A_t ... A_{i+1}; the empty product is I.

  const Mat<T> A1 = mat(2, 2, {1, 1, 0, 1}), A2 = mat(2, 2, {1, 0, 1, 1});
  d.show("A_1", A1, "A_2", A2, "A_2 A_1", A2 * A1, "A_1 A_2", A1 * A2);
  d.differs("E14", "read ascending it is another matrix", A1 * A2, A2 * A1);

  // ## A bound that starts one token too early (E15)
  //
  // e_0 = v_0 - S_0 x_0 and r_1 = (v_1 - v_0) - S_0 (x_1 - x_0) need a sample 0. Different
  // choices of it give different e_0, with the same sequence: S_0 = 1, x_0 = 1, v_0 = 0 or 2.

  d.differs("E15", "the tokens 1, 2, ... do not determine e_0: two choices, two values", T(0 - 1),
            T(2 - 1));
  d.equal("E15", "e_0 + r_1 is: v_1 - S_0 x_1 for either choice (v_1 = 5, x_1 = 3)",
          T((0 - 1) + ((5 - 0) - (3 - 1))), T((2 - 1) + ((5 - 2) - (3 - 1))));

  // ## One letter, two quantities (E9, E16)
  //
  // e before the write is e~ = v - S_{t-1} x, after it (1 - beta a) e~. gamma_{tau,t} is a mixing
  // weight in one text and gamma_i a product of decays in the other; H^r is an accumulated write
  // and H a mask; D is diag(beta) or diag(gamma). S = 0, k = x = q = v = 1, alpha = 3, beta = 2:

  d.differs("E9", "e before the write is not e after it", one, T((1 - beta) * one));
  d.differs("E16", "gamma_{1,1}, the mixing weight beta (k . q), is not gamma_1, the decay",
            T(beta), T(3));
  d.differs("E16", "D = diag(beta) is not D = diag(gamma)", T(beta), T(3));
  d.differs("E16", "H^1 = beta v k^T is not H_11", T(beta), one);

  // ## K X^T for X K^T (F85)
  //
  // Two tokens, one channel: k = 1, 1, q = 1, 0, lambda = 1, so x = 2, 1; v = 1, 0, beta = 1,
  // S_0 = 0. By tokens: S_1 = 1, then S_2 = 1 + (0 - 1 x 1) = 0. The interaction is beta_2 x_2
  // k_1 = 1, not k_2 x_1 = 2.

  const Mat<T> K = mat(2, 1, {1, 1}), X = mat(2, 1, {2, 1}), V = mat(2, 1, {1, 0});
  const Mat<T> XK = X * K.transpose(), KX = K * X.transpose();
  const Mat<T> right = solve_unit_lower<T>(strictly_lower<T>(XK), V).transpose() * K;
  const Mat<T> printed = solve_unit_lower<T>(strictly_lower<T>(KX), V).transpose() * K;
  d.show("X K^T", XK, "K X^T", KX, "S_2", right, "S_2 as printed", printed);
  d.equal("F85", "X K^T gives S_2 = 0", right(0, 0), T(0));
  d.differs("F85", "K X^T gives another state", printed, right);

  // ## M for H in the output (F87, F56)
  //
  // Two tokens, one channel: k = q = 1, alpha_2 = 2, v = 1, 0, beta = 1, S_0 = 0. z = (1, 0 - 2)
  // and o_2 = alpha_2 z_1 + z_2 = 0. With the mask M, 1 - 2 = -1. The state is right either way.
  // The same numbers serve Gated DeltaNet, lambda being 0 here.

  const Mat<T> H = mat(2, 2, {1, 0, 2, 1}), Z = mat(2, 1, {1, -2}),
               scores = mat(2, 2, {1, 1, 1, 1});
  const Mat<T> O = H.cwiseProduct(scores) * Z, O_M = lower<T>(scores) * Z;
  d.show("z", Z, "H", H, "O", O, "O with M", O_M);
  d.differs("F87", "Q-Delta: (Q K^T . M) Z, for (Q K^T . H) Z, is another output", O_M, O);
  d.differs("F56", "Gated DeltaNet: (Q K^T . M) Z, for (Q K^T . H) Z, is another output", O_M, O);
  d.equal("F87", "the state does not use the mask: alpha_2 z_1 + z_2 = 0",
          T(2 * Z(0, 0) + Z(1, 0)), T(0));

  // ## Ratios with and without their diagonal (F88)

  d.differs("F88", "strictly lower ratios in the output lose each token's own write",
            strictly_lower<T>(H) * Z, O);

  d.remark("E17",
           "one text has a section 7.4 inside its chapter 6, names a table and figures that are "
           "missing");
}

}  // namespace delta
