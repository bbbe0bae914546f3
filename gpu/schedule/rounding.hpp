// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "reference/core/linalg.hpp"
#include "reference/scalars/rounded.hpp"

namespace delta::gpu {

/// A matrix as the sum of two operands: the nearest one, and the nearest one to what that leaves out.
/// \f[ M \approx \hat M + \check M, \qquad \check M = \widehat{M - \hat M} \f]
template <Ring T> struct Pair {
  Mat<T> big, small;
  Mat<T> sum() const { return big + small; }
};

/// Three products of operands; the fourth, of the two small halves, is as small as what the pairs leave out.
template <Ring T> Mat<T> operator*(const Pair<T>& A, const Pair<T>& B) {
  return A.small * B.big + A.big * B.small + A.big * B.big;
}

/// What an expression of matrices evaluates to.
template <class M> using PlainMat = Mat<typename M::Scalar>;

/// The schedule as an identity: what a product reads is the matrix itself. Exists over any ring.
struct Exact {
  template <class M> PlainMat<M> operand(const Eigen::MatrixBase<M>& A) const { return A; }
  template <class M> Pair<typename M::Scalar> pair(const Eigen::MatrixBase<M>& A) const {
    return {A, PlainMat<M>::Zero(A.rows(), A.cols())};
  }
  template <class M> Pair<typename M::Scalar> bf16_pair(const Eigen::MatrixBase<M>& A) const { return pair(A); }
  template <class M> PlainMat<M> tf32(const Eigen::MatrixBase<M>& A) const { return A; }
};

/// The schedule as tensor cores compute it: what a product reads is rounded to 16 bits or, where it says so, to tf32;
/// what is written to o is rounded to 16 bits; and nothing else.
struct SixteenBits {
  Format format;  ///< of q, k and v: bf16 or fp16

  template <class M> PlainMat<M> operand(const Eigen::MatrixBase<M>& A) const { return rounded<M>(A, format); }
  template <class M> Pair<typename M::Scalar> pair(const Eigen::MatrixBase<M>& A) const { return split<M>(A, format); }
  /// In fp16 too: the entries of an inverse may be beyond its range.
  template <class M> Pair<typename M::Scalar> bf16_pair(const Eigen::MatrixBase<M>& A) const {
    return split<M>(A, kBf16);
  }
  /// Of numbers in fp32, for inputs of either type: they keep the range, and 11 bits.
  template <class M> PlainMat<M> tf32(const Eigen::MatrixBase<M>& A) const { return rounded<M>(A, kTf32); }

 private:
  template <class M> static PlainMat<M> rounded(const PlainMat<M>& A, const Format& f) {
    using T = typename M::Scalar;
    return A.unaryExpr([&](const T& x) { return Scalar<T>::from(f.round(Scalar<T>::to_double(x))); });
  }
  template <class M> static Pair<typename M::Scalar> split(const PlainMat<M>& A, const Format& f) {
    const PlainMat<M> big = rounded<M>(A, f);
    return {big, rounded<M>(A - big, f)};
  }
};

}  // namespace delta::gpu
