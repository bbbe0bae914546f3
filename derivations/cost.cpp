// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/counted.hpp"
#include "derivations/core/derivation.hpp"

namespace delta {

// # Cost: what each form multiplies, counted
//
// The scalar of this file counts its own operations. Each form is written with plain loops, so
// that what is counted is what stands here; a product followed by a sum is one multiply-add
// (MAC).

using N = Counted;

// A [m x n] B^T, B [p x n]: m n p products.
static Mat<N> times_transposed(const Mat<N>& A, const Mat<N>& B) {
  Mat<N> C = Mat<N>::Zero(A.rows(), B.rows());
  for (Index i = 0; i < A.rows(); ++i)
    for (Index j = 0; j < B.rows(); ++j)
      for (Index l = 0; l < A.cols(); ++l) C(i, j) += A(i, l) * B(j, l);
  return C;
}

// A [m x n] B, B [n x p]: m n p products.
static Mat<N> times(const Mat<N>& A, const Mat<N>& B) {
  Mat<N> C = Mat<N>::Zero(A.rows(), B.cols());
  for (Index i = 0; i < A.rows(); ++i)
    for (Index l = 0; l < A.cols(); ++l)
      for (Index j = 0; j < B.cols(); ++j) C(i, j) += A(i, l) * B(l, j);
  return C;
}

// One token of the gated delta rule, [d x d]: decay, predict, write, read.
static void token(Mat<N>& S, const Vec<N>& k, const Vec<N>& v, const Vec<N>& q, N alpha, N beta) {
  const Index n = S.rows();
  Vec<N> e(n), o = Vec<N>::Zero(n);
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) S(i, j) *= alpha;
    N prediction(0);
    for (Index j = 0; j < n; ++j) prediction += S(i, j) * k[j];
    e[i] = beta * (v[i] - prediction);
    for (Index j = 0; j < n; ++j) S(i, j) += e[i] * k[j];
    for (Index j = 0; j < n; ++j) o[i] += S(i, j) * q[j];
  }
}

// (I + L)^{-1} row by row: row i is -L_i times the rows above. i^2 products for row i, C^3 / 3 in
// all.
static Mat<N> inverse_of_unit_lower(const Mat<N>& L) {
  const Index C = L.rows();
  Mat<N> X = Mat<N>::Zero(C, C);
  for (Index i = 0; i < C; ++i) {
    X(i, i) = N(1);
    for (Index j = 0; j < i; ++j)
      for (Index l = 0; l < i; ++l) X(i, l) -= L(i, j) * X(j, l);
  }
  return X;
}

// One chunk of C tokens in the WY form with an explicit inverse. The entry-wise products with
// beta are left out on both sides: they are C d, not C d^2.
static void chunk(Mat<N>& S, const Mat<N>& Q, const Mat<N>& K, const Mat<N>& V) {
  const Mat<N> X = inverse_of_unit_lower(times_transposed(K, K));  // C^2 d + C^3 / 3
  const Mat<N> W = times(X, K), U = times(X, V);                   // 2 C^2 d
  const Mat<N> WS = times_transposed(W, S);                        // C d^2
  Mat<N> Z(U.rows(), U.cols());
  for (Index i = 0; i < Z.rows(); ++i)
    for (Index j = 0; j < Z.cols(); ++j) Z(i, j) = U(i, j) - WS(i, j);
  const Mat<N> scores = times_transposed(Q, K), inside = times(scores, Z);  // 2 C^2 d
  const Mat<N> before = times_transposed(Q, S);                             // C d^2
  S += times(Mat<N>(Z.transpose()), K);                                     // C d^2
  (void)inside, (void)before;
}

static double macs() { return static_cast<double>(Counted::products); }

void cost(Derivation<Rational>& d) {
  const Index n = d.size("d", 128, 128);  // d_k = d_v
  const Mat<N> one = Mat<N>::Ones(256, n);

  // ## 1. A token of the recurrence: 4 d^2
  //
  // Decay, predict, write, read: each touches every entry of the state once. Constant per token,
  // linear in the length, quadratic in the width.

  Mat<N> S = Mat<N>::Zero(n, n);
  const Vec<N> row = Vec<N>::Ones(n);
  Counted::reset();
  token(S, row, row, row, N(1), N(1));
  const double recurrence = macs();
  d.counts("F42", "the recurrence: 65k products a token at d = 128", recurrence, 65.5e3, 0.5e3);

  Mat<N> half = Mat<N>::Zero(n / 2, n / 2);
  const Vec<N> short_row = Vec<N>::Ones(n / 2);
  Counted::reset();
  token(half, short_row, short_row, short_row, N(1), N(1));
  d.counts("F81", "half the width, a quarter of the cost: O(d_v d_k) a token",
           recurrence / macs(), 4, 0.05);
  d.counts("F68", "so 32 heads of 64 cost half of 16 heads of 128: not linear in head width",
           32 * macs() / (16 * recurrence), 0.5, 0.01);
  Counted::reset();
  for (int t = 0; t < 3; ++t) token(half, short_row, short_row, short_row, N(1), N(1));
  const double three = macs();
  Counted::reset();
  for (int t = 0; t < 6; ++t) token(half, short_row, short_row, short_row, N(1), N(1));
  d.counts("F81", "twice the tokens, twice the cost: O(L d_v d_k)", macs() / three, 2);

  // ## 2. A token of the chunk form: 3 d^2 + 5 C d + C^2 / 3
  //
  // The state is read twice and written once per chunk row (3 d^2), the five products inside the
  // chunk cost C d per row, the inverse C^2 / 3. No state is kept per token: W and U are C d
  // numbers.

  const double stated[][2] = {{16, 59e3}, {32, 70e3}, {64, 91e3}, {128, 137e3}};
  for (const auto& [C, per_token] : stated) {
    const Mat<N> rows = one.topRows(static_cast<Index>(C));
    Mat<N> state = Mat<N>::Zero(n, n);
    Counted::reset();
    chunk(state, rows, rows, rows);
    d.counts("F42",
             "the chunk form: 59k, 70k, 91k, 137k products a token for C = 16, 32, 64, 128",
             macs() / C, per_token, 0.6e3);
  }
  // Why chunks win although they multiply more: the products are of matrices, and only L / C
  // steps are serial.

  // ## 3. Serial depth
  //
  // What has to wait for what: the scalar carries the longest chain of products behind it. Linear
  // attention with decay, by chunks of C, d = 2. gamma_C and V^T K can be had before the state is
  // there; then the state is multiplied once per chunk. Chunks of one token are the recurrence.

  const auto longest = [](const Mat<N>& M) {
    long most = 0;
    for (Index i = 0; i < M.size(); ++i) most = std::max(most, M.data()[i].depth);
    return static_cast<double>(most);
  };
  const auto by_chunks = [&](Index L, Index C) {
    Mat<N> state = Mat<N>::Ones(2, 2);
    const Mat<N> rows = Mat<N>::Ones(C, 2);
    for (Index begin = 0; begin < L; begin += C) {
      N gamma(1);
      for (Index i = 1; i < C; ++i) gamma *= N(1);
      const Mat<N> written = times(Mat<N>(rows.transpose()), rows);  // V^T K
      for (Index i = 0; i < 4; ++i) state.data()[i] = gamma * state.data()[i] + written.data()[i];
    }
    return longest(state);
  };
  const auto by_mask = [&](Index L) {  // (Q K^T . M) V
    const Mat<N> rows = Mat<N>::Ones(L, 2);
    return longest(times(times_transposed(rows, rows), rows));
  };
  d.counts("F19", "recurrence: 1024 tokens, 1024 products in a row", by_chunks(1024, 1), 1024);
  d.counts("F19", "masked form: 2 in a row, scores and sums of values", by_mask(32), 2);
  d.counts("F19", "and as many at twice the length", by_mask(64), 2);
  d.counts("F19", "chunks of 64: 16 states in a row, behind the 63 products of the first gamma",
           by_chunks(1024, 64), 16 + 63);
  d.counts("F19", "twice the length: 16 more", by_chunks(2048, 64) - by_chunks(1024, 64), 16);

  // ## 4. What is quadratic

  const auto masked = [&](Index L) {  // (Q K^T . M) V over the triangle, for one channel of d = 8
    Counted::reset();
    Mat<N> Q = Mat<N>::Ones(L, 8), O = Mat<N>::Zero(L, 8);
    for (Index t = 0; t < L; ++t)
      for (Index i = 0; i <= t; ++i) {
        N weight(0);
        for (Index j = 0; j < 8; ++j) weight += Q(t, j) * Q(i, j);
        for (Index j = 0; j < 8; ++j) O(t, j) += weight * Q(i, j);
      }
    return macs();
  };
  d.counts("F19", "the masked form is quadratic: twice the length, four times the cost",
           masked(256) / masked(128), 4, 0.05);
  d.counts("F01",
           "as is softmax attention, whose scores and means are those products: L (L + 1) d at L "
           "= 128, d = 8",
           masked(128), 128 * 129 * 8);

  // ## 5. Pseudo-values by sums, the whole sequence as one chunk, dense transitions

  // u_t needs k_i . k_t and a multiple of u_i, for every i < t:

  const auto pseudo_value = [](Index t, Index width) {
    const Vec<N> k = Vec<N>::Ones(width);
    Vec<N> u = Vec<N>::Ones(width);
    for (Index i = 0; i < t; ++i) {
      N overlap(0);
      for (Index j = 0; j < width; ++j) overlap += k[j] * k[j];
      for (Index j = 0; j < width; ++j) u[j] -= overlap * k[j];
    }
  };
  const auto by_sums = [&](Index L, Index width, Index every) {  // every so many tokens
    Counted::reset();
    for (Index t = every / 2; t < L; t += every) pseudo_value(t, width);
    return macs();
  };
  d.counts("F32", "pseudo-values by sums: d L (L - 1) products at L = 64, d = 16",
           by_sums(64, 16, 1), 16 * 64 * 63);
  d.counts("F32", "at L = 1024, d = 128 that is twice the recurrence (every 4th token counted)",
           by_sums(1024, 128, 4) / (1024 / 4 * recurrence), 2, 0.01);
  d.counts("F32", "at L = 8192 it is 16 times the recurrence (every 128th)",
           by_sums(8192, 128, 128) / (8192 / 128 * recurrence), 16, 0.05);

  const auto inverse = [](Index L) {
    Counted::reset();
    inverse_of_unit_lower(Mat<N>::Zero(L, L));
    return macs();
  };
  d.counts("F41",
           "the inverse of a length-L matrix is cubic: twice the length, eight times the cost",
           inverse(128) / inverse(64), 8, 0.15);
  d.counts("F41", "in chunks of 64 the inverses of 512 tokens cost 1/64 of it",
           inverse(512) / (8 * inverse(64)), 64, 1.6);

  const auto step = [](Index rows, Index cols,
                       int kind) {  // 0 dense, 1 identity plus rank one, 2 entry by entry
    Counted::reset();
    Mat<N> M = Mat<N>::Ones(rows, cols);
    const Vec<N> k = Vec<N>::Ones(cols);
    if (kind == 0) times(M, Mat<N>::Ones(cols, cols));
    for (Index i = 0; i < rows && kind == 1; ++i) {
      N s(0);
      for (Index j = 0; j < cols; ++j) s += M(i, j) * k[j];
      for (Index j = 0; j < cols; ++j) M(i, j) -= s * k[j];
    }
    if (kind == 2) M *= N(1);
    return macs();
  };
  d.counts("F43", "a dense n x n transition on a d x n state: d n^2 products", step(8, 32, 0),
           8 * 32 * 32);
  d.counts("F43", "identity plus rank one: 2 d n", step(8, 32, 1), 2 * 8 * 32);
  d.counts("F43", "entry by entry: d n, one for each entry of the state", step(8, 32, 2), 8 * 32);
  d.counts("E10",
           "an elementwise update of a d x n state is not O(d): 4 x the columns, 4 x the cost",
           step(8, 128, 2) / step(8, 32, 2), 4);
}

}  // namespace delta
