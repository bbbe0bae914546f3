// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>

#include "gpu/schedule/rounding.hpp"
#include "reference/core/problem.hpp"

namespace delta::gpu {

/// Tokens of a chunk, and rows of the square tiles that its matrices are computed by. Proofs over rationals take less.
struct Tiles {
  Index chunk = 64, tile = 16;
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

/// A chunk of c tokens as the chains receive it: its rows, three operands, and the factors of its tokens. The scalar is
/// a `Number` here, since T is a matrix.
template <Ring Number> struct Prepared {
  Index begin;          ///<            its first token
  Mat<Number> Q, K, V;  ///< [c x d_k], [c x d_k], [c x d_v] as they lie in memory
  Mat<Number> L;        ///< [c x c]    sl(H . X K^T) B; it stays with the producer
  Mat<Number> A;        ///< [c x c]    (I + L)^{-1}; it stays too
  Mat<Number> T;        ///< [c x c]    A, an operand
  Mat<Number> W;        ///< [c x d_k]  A D_g X, an operand
  Mat<Number> P;        ///< [c x c]    scale (H . Q K^T) B, an operand
  Vec<Number> gamma;    ///< [c]        alpha_1 ... alpha_i
  Vec<Number> read;     ///< [c]        D_f: scale gamma_i, and the norm of q_i
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
    Vec<T> since(rows);    // from the tile's first row to i
    Vec<T> before(begin);  // after j, up to the tile's first row
    for (Index i = 0; i < rows; ++i) since[i] = i ? T(since[i - 1] * alpha[begin + i]) : alpha[begin];
    for (Index j = begin - 1; j >= 0; --j) before[j] = j < begin - 1 ? T(before[j + 1] * alpha[j + 1]) : T(1);
    H.block(begin, 0, rows, begin) = since * before.transpose();
  }
  return H;
}

/// A = (I + L)^{-1}, a row of tiles at a time. The diagonal tiles are solved by forward substitution; the others follow
/// from A (I + L) = I, from the diagonal leftwards, so that a row needs L and the diagonal tiles and no other row:
/// \f[ A_{ij} = -\Big(\sum_{k=j+1}^{i} A_{ik} L_{kj}\Big) A_{jj} \f]
/// Every factor is a pair of bf16, good to 16 bits, and no power of L appears: for repeated keys those reach 4.65e17.
/// What is returned is not rounded. \param L  [c x c] strictly lower   \formula{F38}
template <Ring T, class Rounding> Mat<T> inverse_by_rows(const Mat<T>& L, Index tile, const Rounding& round) {
  const Index c = L.rows();
  Mat<T> A = Mat<T>::Zero(c, c);
  const auto rows = [&](Index i) { return std::min(tile, c - i); };
  const auto pair_at = [&](const Mat<T>& M, Index i, Index j) {
    return round.bf16_pair(M.block(i, j, rows(i), rows(j)));
  };
  for (Index i = 0; i < c; i += tile) {
    const Mat<T> I = Mat<T>::Identity(rows(i), rows(i));
    A.block(i, i, rows(i), rows(i)) = solve_unit_lower<T>(L.block(i, i, rows(i), rows(i)), I);
  }
  for (Index i = tile; i < c; i += tile)
    for (Index j = i - tile; j >= 0; j -= tile) {
      Mat<T> sum = Mat<T>::Zero(rows(i), tile);
      for (Index k = j + tile; k <= i; k += tile) sum += pair_at(A, i, k) * pair_at(L, k, j);
      A.block(i, j, rows(i), tile) = round.bf16_pair(-sum) * pair_at(A, j, j);
    }
  return A;
}

/// What of a chunk the state does not enter. Two products of rows as they lie in memory serve all of it:
/// \f[ L = \mathrm{sl}(H \odot X K^\top)\,B, \quad X K^\top = c\,K K^\top + \mathrm{diag}(\lambda)\,Q K^\top \f]
/// \f[ A = (I + L)^{-1}, \quad T = \hat A, \quad P = \mathrm{round}(\mathrm{scale}\,(H \odot Q K^\top)\,B) \f]
/// \f[ W = \mathrm{round}((A D_a) K + (A D_b) Q), \quad D_a = c\,D_g, \quad D_b = D_g\,\mathrm{diag}(\lambda) \f]
/// A D_a and A D_b are pairs, and K and Q are what memory holds: no row of X is ever rounded. Where rows are still to
/// be normalised, their norms are factors too.
///
/// B stands on the right, since with G = sl(H . X K^T) it can be pushed through the inverse,
/// \f[ (I + B G)^{-1} B = B\,(I + G B)^{-1}: \f]
/// the corrections are Z = B E, V is an operand of the errors E as it lies in memory, and the diagonal of T is 1.
/// \param begin  the chunk's first token   \formula{F37} \formula{F38} \formula{F83}
template <Ring T, class Rounding>
Prepared<T> prepare(const Head<T>& head, Index begin, const Tiles& tiles, const Rounding& round) {
  const Index c = std::min(tiles.chunk, head.tokens() - begin);
  const auto of_chunk = [&](const Vec<T>& x) -> Vec<T> { return x.segment(begin, c); };
  const Vec<T> alpha = of_chunk(head.alpha), beta = of_chunk(head.beta), lambda = of_chunk(head.lambda),
               q_norm = of_chunk(head.q_norm), k_norm = of_chunk(head.k_norm);
  Prepared<T> p{.begin = begin,
                .Q = head.Q.middleRows(begin, c),
                .K = head.K.middleRows(begin, c),
                .V = head.V.middleRows(begin, c)};

  const Mat<T> H = decays(alpha, tiles.tile);                                                   // [c x c]
  const Mat<T> KK = k_norm.asDiagonal() * Mat<T>(p.K * p.K.transpose()) * k_norm.asDiagonal();  // [c x c]
  const Mat<T> QK = q_norm.asDiagonal() * Mat<T>(p.Q * p.K.transpose()) * k_norm.asDiagonal();  // [c x c]
  const Mat<T> XK = head.c * KK + lambda.asDiagonal() * QK;                                     // [c x c]
  p.L = strictly_lower<T>(H.cwiseProduct(XK) * beta.asDiagonal());                              // [c x c]  F83
  p.A = inverse_by_rows(p.L, tiles.tile, round);                                                // [c x c]  F38
  p.P = round.operand(head.scale * lower<T>(H.cwiseProduct(QK) * beta.asDiagonal()));           // [c x c]

  p.gamma = alpha[0] * H.col(0);
  p.read = head.scale * p.gamma.cwiseProduct(q_norm);
  p.write = beta.cwiseProduct(H.row(c - 1).transpose()).cwiseProduct(k_norm);
  const Vec<T> D_a = head.c * p.gamma.cwiseProduct(k_norm);
  const Vec<T> D_b = p.gamma.cwiseProduct(lambda).cwiseProduct(q_norm);
  const Mat<T> A_a = round.pair(p.A * D_a.asDiagonal()).sum();  // [c x c]
  const Mat<T> A_b = round.pair(p.A * D_b.asDiagonal()).sum();  // [c x c]
  p.T = round.operand(p.A);                                     // [c x c]    F37
  p.W = round.operand(A_a * p.K + A_b * p.Q);                   // [c x d_k]  F83
  return p;
}

}  // namespace delta::gpu
