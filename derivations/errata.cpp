// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Errata: each printed form beside the right one, with the smallest witness
//
// What follows is printed somewhere, in a paper, in notes or in code. Each is run on the smallest
// integers that tell it from the right form, beside the rule itself, and both results are shown.
// If one of these claims failed, the printed form would be right after all, and the build would
// stop. Where d = 1 every vector and every state is one number.

template <Field T> void errata(Derivation<T>& d) {
  const auto mat = [](Index rows, Index cols, std::initializer_list<int> entries) {
    Mat<T> M(rows, cols);
    Index i = 0;
    for (int e : entries) M(i / cols, i % cols) = T(e), ++i;
    return M;
  };

  // ## S for S^T (E1, F86)
  //
  // Q S and W S, with S [d_v x d_k], are right only where S means the transposed state. One token,
  // d = 2, beta = 1, so W = K and U = V.

  const Mat<T> S = mat(2, 2, {0, 1, 0, 0}), Q = mat(1, 2, {0, 1}), K = mat(1, 2, {1, 0}),
               V = mat(1, 2, {1, 2});
  const Mat<T> S_1 = S + (V - K * S.transpose()).transpose() * K, o = Q * S_1.transpose();
  const Mat<T> scores = Q * K.transpose();
  const Mat<T> O = Q * S.transpose() + scores * Mat<T>(V - K * S.transpose());
  const Mat<T> O_printed = Q * S + scores * Mat<T>(V - K * S);
  const Mat<T> S_printed = S + (V - K * S).transpose() * K;
  d.show("S", S, "Q", Q, "K", K, "V", V, "o by the rule", o, "O", O, "O with Q S, W S", O_printed,
         "S' by the rule", S_1, "S' with W S", S_printed);
  d.equal("E1", "O = Q S^T + (Q K^T . M)(U - W S^T) is o", O, o);
  d.differs("E1", "Q S + (Q K^T . M)(U - W S) is another output", O_printed, o);
  d.differs("F86", "S + (U - W S)^T K is another state", S_printed, S_1);
  d.shape("E1", "with d_v = 1, d_k = 2 the product Q S [1 x 2][1 x 2] does not exist",
          Q.cols() != S.topRows(1).rows());

  // ## A without beta_j, beside T with it (E2)
  //
  // One token, d = 1, k = q = 1, beta = 2, v = 1. T = (I + L)^{-1} B is beta here.

  const T k(1), q(1), v(1), beta(2);
  const T o_rule = T(beta * v * k) * q, a = T(q * k) * beta, a_printed = k * q;
  d.show("o by the rule", o_rule, "(Q K^T . M) T v", T(a * v), "k^T q v", T(a_printed * v));
  d.equal("E2", "(Q K^T . M) T v is o", T(a * v), o_rule);
  d.differs("E2", "k_j^T P q_i v_j, the printed element, is not", T(a_printed * v), o_rule);

  // ## v_old as a sum of values (E3)
  //
  // d = 1, k = 1 for all tokens, v = 1, 2, beta = 1.

  T attention(0), delta(0), sum_v(0), sum_u(0);
  for (int value : {1, 2}) {
    const T u = T(value) - delta * k;  // pseudo-value
    attention += T(value) * k, delta += u * k;
    sum_v += T(value) * T(k * k), sum_u += u * T(k * k);
  }
  d.show("S of linear attention", attention, "S of the delta rule", delta, "sum v_i (k_i . k)",
         sum_v, "sum u_i (k_i . k)", sum_u);
  d.equal("E3", "linear attention reads sum v_i (k_i . k)", sum_v, T(attention * k));
  d.equal("E3", "the delta rule reads sum u_i (k_i . k)", sum_u, T(delta * k));
  d.differs("E3", "and not sum v_i (k_i . k)", sum_v, T(delta * k));

  // ## Erased exactly (E8)
  //
  // d = 1, beta = 1, k = 2: what I - k k^T leaves of k.

  const T two(2), left = (T(1) - T(two * two)) * two;
  d.show("(I - k k^T) k", left);
  d.differs("E8", "I - k k^T does not project k to zero unless |k| = 1", left, T(0));

  // ## The write without beta (E10)
  //
  // d = 1, S = 0, k = v = 1, beta = 2: one step of the delta rule, and S M + v k^T with its own M.

  const T zero(0), M = T(1) - beta * k * k;
  const T step = zero + beta * (v - zero * k) * k, family = zero * M + v * k;
  d.show("delta rule", step, "S M + v k^T", family);
  d.differs("E10", "S M_t + v k^T writes beta v k^T only for beta = 1", family, step);

  // ## One letter for the bound and the index (E11)
  //
  // gamma^j = prod_j alpha_j. Read with the free index fixed, it is one factor; read as a product
  // over all j, it does not depend on the row. A state of 1 that decays by alpha = 2, 3, 5, at row 2:

  const int alphas[] = {2, 3, 5};
  T state(1), at_row_2(0), whole(1);
  for (int i = 0; i < 3; ++i) {
    state *= T(alphas[i]), whole *= T(alphas[i]);
    if (i == 1) at_row_2 = state;
  }
  d.equal("E11", "meant: the product up to the row", T(T(alphas[0]) * T(alphas[1])), at_row_2);
  d.differs("E11", "the product over the whole chunk is another number", whole, at_row_2);
  d.differs("E11", "the factor of that row is another number", T(alphas[1]), at_row_2);

  // And the rows tC+1 : (t+1)C+1 of a chunk are a half-open range; with both ends there is one row
  // too many. C = 4, t = 0:

  int half_open = 0, closed = 0;
  for (int row = 1; row < 5; ++row) ++half_open;
  for (int row = 1; row <= 5; ++row) ++closed;
  d.equal("E11", "half open: C rows", T(half_open), T(4));
  d.differs("E11", "with both ends: not C rows", T(closed), T(4));

  // ## A gradient step with its index shifted (E12)
  //
  // S_{t+1} = S_t - beta_t grad_t(S_t) stands beside o_t = S_t q_t. Then token t is not in the state
  // that it reads. d = 1, one token, k = v = q = beta = 1:

  const T S_t(0), S_next = S_t - T(1) * (S_t * k - v) * k;
  d.show("o_1 = S_1 q_1, shifted", T(S_t * q), "o_1 behind the write", T(S_next * q));
  d.differs("E12", "with the shifted index the token does not see its own write", T(S_t * q),
            T(S_next * q));
  d.shape("E12", "the outputs [C x d_o] have d_v columns: d_o is d_v", O.cols() == V.cols());

  // ## Gradient descent plus weight decay (E13)
  //
  // d = 1, S = 2, k = 1, v = 0, beta = 1, alpha = 1/2: the gradient at alpha S, and at S.

  const T alpha = T(1) / T(2), held(2), decayed = alpha * held;
  const T gated = decayed - T(1) * (decayed * k - T(0)) * k;
  const T decoupled = decayed - T(1) * (held * k - T(0)) * k;
  d.show("gated rule", gated, "decoupled weight decay", decoupled);
  d.differs("E13", "decoupled weight decay is not the gated rule", decoupled, gated);

  // ## A product with descending bounds (E14)
  //
  // prod_{j=t}^{i+1} A_j acts from the left and means A_t ... A_{i+1}; the empty product is I. Two
  // transitions of a state that is multiplied from the left:

  const Mat<T> A1 = mat(2, 2, {1, 1, 0, 1}), A2 = mat(2, 2, {1, 0, 1, 1});
  Mat<T> moved = Mat<T>::Identity(2, 2);
  for (const Mat<T>& A : {A1, A2}) moved = A * moved;
  d.show("A_1", A1, "A_2", A2, "token by token", moved, "A_2 A_1", A2 * A1, "A_1 A_2", A1 * A2);
  d.equal("E14", "read descending it is what the tokens do", A2 * A1, moved);
  d.differs("E14", "read ascending it is another matrix", A1 * A2, moved);

  // ## A bound that starts one token too early (E15)
  //
  // e_0 = v_0 - S_0 x_0 and r_1 = (v_1 - v_0) - S_0 (x_1 - x_0) need a sample 0. d = 1, S_0 = 1,
  // x_0 = 1, x_1 = 3, v_1 = 5, and two choices of v_0:

  const auto e_0 = [](const T& v_0) { return T(v_0 - T(1) * T(1)); };
  const auto r_1 = [](const T& v_0) { return T((T(5) - v_0) - T(1) * (T(3) - T(1))); };
  d.differs("E15", "v_0 = 0 and v_0 = 2: the tokens 1, 2, ... do not determine e_0", e_0(T(0)),
            e_0(T(2)));
  d.equal("E15", "e_0 + r_1 = v_1 - S_0 x_1 for v_0 = 0", T(e_0(T(0)) + r_1(T(0))), T(5 - 3));
  d.equal("E15", "and for v_0 = 2", T(e_0(T(2)) + r_1(T(2))), T(5 - 3));

  // ## One letter, two quantities (E9, E16)
  //
  // e before the write is e~ = v - S_{t-1} x, after it v - S_t x. gamma_{tau,t} is a mixing weight in
  // one text and gamma_i a product of decays in the other; H^r is an accumulated write and H a mask;
  // D is diag(beta) or diag(gamma). d = 1, S = 0, k = x = q = v = 1, alpha = 3, beta = 2:

  const T before = v - zero * k, written = zero + beta * before * k, after = v - written * k;
  const T mixing = T(beta * k) * q, decay(3), write = T(beta * v) * k, mask(1);
  d.show("e before", before, "e after", after, "mixing weight", mixing, "decay", decay, "H^1",
         write, "H_11", mask);
  d.differs("E9", "e before the write is not e after it", before, after);
  d.differs("E16", "gamma_{1,1}, the mixing weight beta (k . q), is not gamma_1, the decay",
            mixing, decay);
  d.differs("E16", "D = diag(beta) is not D = diag(gamma)", beta, decay);
  d.differs("E16", "H^1 = beta v k^T is not H_11", write, mask);

  // ## K X^T for X K^T (F85)
  //
  // Two tokens, d = 1: k = 1, 1, q = 1, 0, lambda = 1, so x = 2, 1; v = 1, 0, beta = 1, S_0 = 0.

  const Mat<T> k2 = mat(2, 1, {1, 1}), x2 = mat(2, 1, {2, 1}), v2 = mat(2, 1, {1, 0});
  T by_tokens(0);
  for (Index t = 0; t < 2; ++t) by_tokens += (v2(t, 0) - by_tokens * x2(t, 0)) * k2(t, 0);
  const Mat<T> XK = x2 * k2.transpose(), KX = k2 * x2.transpose();  // [2 x 2]
  const Mat<T> right = solve_unit_lower<T>(strictly_lower<T>(XK), v2).transpose() * k2;
  const Mat<T> printed = solve_unit_lower<T>(strictly_lower<T>(KX), v2).transpose() * k2;
  d.show("X K^T", XK, "K X^T", KX, "S_2 by tokens", by_tokens, "with X K^T", right, "with K X^T",
         printed);
  d.equal("F85", "X K^T gives the state of the rule", right(0, 0), by_tokens);
  d.differs("F85", "K X^T gives another state", printed(0, 0), by_tokens);

  // ## M for H in the output (F87, F56), the strict ratios for H (F88)
  //
  // Two tokens, d = 1: k = x = q = 1, alpha = 1, 2, v = 1, 0, beta = 1, S_0 = 0. lambda is 0, so the
  // same numbers serve Gated DeltaNet.

  const Mat<T> H = mat(2, 2, {1, 0, 2, 1}), ones = mat(2, 2, {1, 1, 1, 1});  // Q K^T is all ones
  T s(0);
  Mat<T> o2(2, 1);
  for (Index t = 0; t < 2; ++t) {
    s *= T(t == 0 ? 1 : 2);
    s += v2(t, 0) - s;
    o2(t, 0) = s;
  }
  const Mat<T> Z = solve_unit_lower<T>(strictly_lower<T>(H.cwiseProduct(ones)), v2);  // [2 x 1]
  const Mat<T> O_H = H.cwiseProduct(ones) * Z, O_M = lower<T>(ones) * Z;
  const Mat<T> O_strict = strictly_lower<T>(H) * Z;
  d.show("z", Z, "H", H, "o by tokens", o2, "(Q K^T . H) Z", O_H, "(Q K^T . M) Z", O_M);
  d.equal("F87", "(Q K^T . H) Z is the output of the rule", O_H, o2);
  d.differs("F87", "Q-Delta: (Q K^T . M) Z is another", O_M, o2);
  d.differs("F56", "Gated DeltaNet: (Q K^T . M) Z is another", O_M, o2);
  d.equal("F87", "the state does not use the mask: alpha_2 z_1 + z_2",
          T(T(2) * Z(0, 0) + Z(1, 0)), s);
  d.differs("F88", "strictly lower ratios in the output lose each token's own write", O_strict,
            o2);

  d.remark("E17",
           "one text has a section 7.4 inside its chapter 6, names a table and figures that are "
           "missing");
}

template void errata(Derivation<Rational>&);
template void errata(Derivation<Generic>&);

}  // namespace delta
