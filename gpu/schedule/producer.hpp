// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>

#include "gpu/schedule/rounding.hpp"
#include "reference/core/problem.hpp"

namespace delta::gpu {

/// Tokens of a chunk, and rows of the square tiles that its matrices are computed by. Proofs over rationals take less.
struct Tiles {
  Index chunk = 64, tile = 16;
  /// Where the chain solves: what is solved by substitution, and what of A is known.
  Index half() const { return std::max(Index{1}, tile / 2); }
  Index square() const { return 2 * tile; }
};

/// One value head of one sequence as it lies in memory: rows in 16 bits, and the numbers of its tokens.
template <Ring T> struct Head {
  Mat<T> Q, K;                 ///< [T x d_k]
  Mat<T> V;                    ///< [T x d_v]
  Vec<T> alpha, beta, lambda;  ///< [T]
  Vec<T> q_norm, k_norm;       ///< [T] 1 / |q_t| and 1 / |k_t| where the rows are still to be normalised, else 1
  T c = T(1);                  ///< x_t = c k_t + lambda_t q_t: 0 for the rules that predict nothing
  T scale = T(1);              ///< of the output
  Mat<T> S0;                   ///< [d_v x d_k]

  Index tokens() const { return Q.rows(); }
};

/// Value head j of sequence n. \pre the decay is one number a token
template <Ring T> Head<T> head(const RuleInfo& rule, const Problem<T>& p, Index n, Index j) {
  const Index length = p.shape.length(n), d_k = p.shape.d_k;
  const Vec<T> ones = Vec<T>::Constant(length, T(1));
  Head<T> h{.Q = Mat<T>(length, d_k),
            .K = Mat<T>(length, d_k),
            .V = Mat<T>(length, p.shape.d_v),
            .alpha = ones,
            .beta = ones,
            .lambda = Vec<T>::Constant(length, T(0)),
            .q_norm = ones,
            .k_norm = ones,
            .c = T(rule.strength == Strength::no ? 0 : 1),
            .scale = p.scale,
            .S0 = p.initial_state(n, j)};
  for (Index t = 0; t < length; ++t) {
    const Token<T> x = p.token(rule, n, j, t);
    h.Q.row(t) = x.q.transpose(), h.K.row(t) = x.k.transpose(), h.V.row(t) = x.v.transpose();
    h.alpha[t] = x.alpha, h.beta[t] = x.beta, h.lambda[t] = x.lambda;
  }
  return h;
}

/// Who solves for the errors, (I + L) E = V - D_a X S^T.
enum class Solve {
  beforehand,    ///< v5, v6: the producer multiplies A = (I + L)^{-1} out: E = T V - W S^T, T = A, W = A D_a X
  on_the_chain,  ///< v7: the chain itself, square by square. It waits more often, but nobody makes A whole, T, W and X
};

/// A chunk of c tokens as the chains receive it: its rows, its operands, and the factors of its tokens. The scalar is
/// a `Number` here, since T is a matrix.
template <Ring Number> struct Prepared {
  Solve solve;          ///<            beforehand: with T and W; on the chain: with L, A, `share` and `read`
  Index square;         ///<            on the chain: of the diagonal squares that A is known in
  Index begin;          ///<            its first token
  Mat<Number> Q, K, V;  ///< [c x d_k], [c x d_k], [c x d_v] as they lie in memory
  Mat<Number> L;        ///< [c x c]    sl(c H . X K^T) B; beforehand, it stays with the producer
  Mat<Number> A;        ///< [c x c]    (I + L)^{-1}; on the chain, of each square by itself
  Mat<Number> T;        ///< [c x c]    A, an operand
  Mat<Number> W;        ///< [c x d_k]  A D_a X, an operand
  Mat<Number> P;        ///< [c x c]    scale (H . Q K^T) B, an operand
  Vec<Number> share;    ///< [c]        lambda_i, times |k_i| / |q_i|: x_i is k_i + share_i q_i, times the norm of k_i
  Vec<Number> read;     ///< [c]        D_a: c gamma_i, and the norm of k_i
  Vec<Number> gamma;    ///< [c]        alpha_1 ... alpha_i
  Vec<Number> output;   ///< [c]        D_f: scale gamma_i, and the norm of q_i
  Vec<Number> write;    ///< [c]        D_w: beta_j gamma_c / gamma_j, and the norm of k_j
};

/// H_ij = alpha_{j+1} ... alpha_i for j <= i, tile by tile. With m the last token before the rows of a tile, what lies
/// below the diagonal tiles is a column times a row, and no factor is a quotient or exceeds 1:
/// \f[ H_{ij} = (\alpha_{m+1} \cdots \alpha_i)\,(\alpha_{j+1} \cdots \alpha_m) \f]
/// \param alpha  [c]   \return [c x c], 0 above the diagonal
template <Ring T> Mat<T> decays(const Vec<T>& alpha, Index tile) {
  const Index c = alpha.size();
  Mat<T> H = Mat<T>::Identity(c, c);
  for (Index begin = 0; begin < c; begin += tile) {
    const Index rows = std::min(tile, c - begin);
    for (Index i = begin + 1; i < begin + rows; ++i)
      H.row(i).segment(begin, i - begin) = alpha[i] * H.row(i - 1).segment(begin, i - begin);
    Vec<T> since(rows);    // after m, up to i
    Vec<T> before(begin);  // after j, up to m
    for (Index i = 0; i < rows; ++i) since[i] = i ? T(since[i - 1] * alpha[begin + i]) : alpha[begin];
    for (Index j = begin - 1; j >= 0; --j) before[j] = j < begin - 1 ? T(before[j + 1] * alpha[j + 1]) : T(1);
    H.block(begin, 0, rows, begin) = since * before.transpose();
  }
  return H;
}

/// A = (I + L)^{-1}, from the diagonal outwards. The diagonal tiles are solved by forward substitution; where the two
/// diagonal quarters of a square are known, the third follows,
/// \f[ A_{21} = -(A_{22} L_{21})\,A_{11}, \f]
/// for squares of two tiles, of four and so on. No power of L appears: for repeated keys those reach 4.65e17. What is
/// returned is not rounded.
/// \param L  [c x c] strictly lower   \param largest  squares are not joined beyond; A is 0 outside of them
/// \param multiply  how the factors are rounded   \formula{F38}
template <Ring T, class Multiply>
Mat<T> inverse_by_squares(const Mat<T>& L, Index tile, Index largest, const Multiply& multiply) {
  const Index c = L.rows();
  Mat<T> A = Mat<T>::Zero(c, c);
  for (Index i = 0; i < c; i += tile) {
    const Index n = std::min(tile, c - i);
    A.block(i, i, n, n) = solve_unit_lower<T>(L.block(i, i, n, n), Mat<T>::Identity(n, n));
  }
  for (Index half = tile; half < std::min(c, largest); half *= 2)
    for (Index i = half; i < c; i += 2 * half) {  // the first row of A_22
      const Index j = i - half, n = std::min(half, c - i);
      const Mat<T> left = multiply(A.block(i, i, n, n), L.block(i, j, n, half));
      A.block(i, j, n, half) = -multiply(left, A.block(j, j, half, half));
    }
  return A;
}

/// What of a chunk the state does not enter.
/// \f[ X = \mathrm{round}(K + \mathrm{diag}(\hat\lambda)\,Q), \quad L = \mathrm{sl}(c\,H \odot X K^\top)\,B, \quad
///     A = (I + L)^{-1}, \quad T = \hat A \f]
/// \f[ W = \mathrm{round}((A D_a) X), \quad D_a = c\,D_g, \quad
///     P = \mathrm{round}(\mathrm{scale}\,(H \odot Q K^\top)\,B) \f]
/// A D_a is a pair. Lambda and a row of X are rounded once each, like inputs, and X is K where lambda is 0. Where rows
/// are still to be normalised, x = (k + lambda |k| / |q| q) / |k|: norms are factors, of lambda too.
///
/// A is made of pairs of bf16, good to 16 bits.
///
/// Where the chain solves there is no T and no W, and neither lambda nor X is rounded: the kernel does not make X, and
/// has a sum of two products instead,
/// \f[ X K^\top = K K^\top + \mathrm{diag}(\lambda)\,Q K^\top. \f]
/// A is made of half tiles, in tf32, and no further than to squares of two tiles.
///
/// B stands on the right, since with G = sl(H . X K^T) it can be pushed through the inverse,
/// \f[ (I + B G)^{-1} B = B\,(I + G B)^{-1}: \f]
/// the corrections are Z = B E, V is an operand of the errors E as it lies in memory, and the diagonal of T is 1.
/// \param begin  the chunk's first token   \formula{F37} \formula{F38} \formula{F83}
template <Ring T, class Rounding>
Prepared<T> prepare(const Head<T>& head, Index begin, Solve solve, const Tiles& tiles, const Rounding& round) {
  const Index c = std::min(tiles.chunk, head.tokens() - begin);
  const auto of_chunk = [&](const Vec<T>& x) -> Vec<T> { return x.segment(begin, c); };
  const Vec<T> alpha = of_chunk(head.alpha), beta = of_chunk(head.beta), lambda = of_chunk(head.lambda),
               q_norm = of_chunk(head.q_norm), k_norm = of_chunk(head.k_norm);
  Prepared<T> p{.solve = solve,
                .square = tiles.square(),
                .begin = begin,
                .Q = head.Q.middleRows(begin, c),
                .K = head.K.middleRows(begin, c),
                .V = head.V.middleRows(begin, c)};

  const Mat<T> H = decays(alpha, tiles.tile);  // [c x c]
  const bool beforehand = solve == Solve::beforehand;
  const auto as_input = [&](const Mat<T>& M) -> Mat<T> { return beforehand ? Mat<T>(round.operand(M)) : M; };
  p.share = as_input(lambda.cwiseProduct(q_norm).cwiseQuotient(k_norm));
  const Mat<T> X = as_input(p.K + p.share.asDiagonal() * p.Q);                                  // [c x d_k]
  const Mat<T> XK = k_norm.asDiagonal() * Mat<T>(X * p.K.transpose()) * k_norm.asDiagonal();    // [c x c]
  const Mat<T> QK = q_norm.asDiagonal() * Mat<T>(p.Q * p.K.transpose()) * k_norm.asDiagonal();  // [c x c]
  p.L = strictly_lower<T>(head.c * H.cwiseProduct(XK) * beta.asDiagonal());                     // [c x c]  F83
  const auto pairs = [&](const Mat<T>& M, const Mat<T>& N) -> Mat<T> {
    return round.bf16_pair(M) * round.bf16_pair(N);
  };
  const auto in_tf32 = [&](const Mat<T>& M, const Mat<T>& N) -> Mat<T> { return round.tf32(M) * round.tf32(N); };
  p.A = beforehand ? inverse_by_squares(p.L, tiles.tile, c, pairs)  // [c x c]  F38
                   : round.tf32(inverse_by_squares(p.L, tiles.half(), tiles.square(), in_tf32));
  p.P = round.operand(head.scale * lower<T>(H.cwiseProduct(QK) * beta.asDiagonal()));  // [c x c]

  p.gamma = alpha[0] * H.col(0);
  p.output = head.scale * p.gamma.cwiseProduct(q_norm);
  p.write = beta.cwiseProduct(H.row(c - 1).transpose()).cwiseProduct(k_norm);
  p.read = head.c * p.gamma.cwiseProduct(k_norm);
  if (!beforehand) return p;
  p.T = round.operand(p.A);                                              // [c x c]    F37
  p.W = round.operand(round.pair(p.A * p.read.asDiagonal()).sum() * X);  // [c x d_k]  F83
  return p;
}

}  // namespace delta::gpu
