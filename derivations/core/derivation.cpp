// SPDX-License-Identifier: Apache-2.0
#include "derivation.hpp"

#include <cmath>
#include <cstdio>
#include <stdexcept>

namespace delta {

std::string_view name(Kind kind) {
  constexpr std::string_view names[] = {"EQ", "NE", "INEQ", "NUM", "CALC", "CNT", "SHAPE", "Q"};
  return names[static_cast<int>(kind)];
}

std::string_view why_one_scalar(Kind kind) {
  switch (kind) {
    case Kind::INEQ:
      return "an order, which the field does not have";
    case Kind::NUM:
      return "floating-point numbers";
    case Kind::CALC:
      return "numbers as they are printed";
    case Kind::CNT:
      return "operations, counted";
    case Kind::SHAPE:
      return "sizes";
    case Kind::Q:
      return "remarks";
    default:
      return "";
  }
}

std::string text(const Rational& x) { return x.str(); }

std::string text(const Generic& x) {
  const std::uint64_t r = x.value().residue();
  return r > GF61::p / 2 ? "-" + std::to_string(GF61::p - r) : std::to_string(r);
}

std::string text(double x) {
  char s[32];
  std::snprintf(s, sizeof s, "%.6g", x);
  return s;
}

void claim_reached(const Claim& claim, Listener& listener) { listener.claimed(claim); }

namespace {

/// C = A B, the definition.
template <Ring T, class A, class B> Mat<T> product(const A& a, const B& b) {
  Mat<T> c = Mat<T>::Zero(a.rows(), b.cols());
  for (Index i = 0; i < a.rows(); ++i)
    for (Index k = 0; k < a.cols(); ++k)
      for (Index j = 0; j < b.cols(); ++j) c(i, j) += a.coeff(i, k) * b.coeff(k, j);
  return c;
}

}  // namespace

template <Drawn T> Mat<T> operator*(const Mat<T>& A, const Mat<T>& B) { return product<T>(A, B); }
template <Drawn T> Mat<T> operator*(const Mat<T>& A, const Transposed<T>& B) {
  return product<T>(A, B);
}
template <Drawn T> Mat<T> operator*(const Transposed<T>& A, const Mat<T>& B) {
  return product<T>(A, B);
}
template <Drawn T> Vec<T> operator*(const Mat<T>& A, const Vec<T>& x) { return product<T>(A, x); }
DELTA_PRODUCTS(, Rational)
DELTA_PRODUCTS(, Generic)

template <Ring T>
Derivation<T>::Derivation(const Setup& setup, Listener& listener)
    : setup_(setup), listener_(listener), random_(setup.seed) {}

template <Ring T> Index Derivation<T>::size(const std::string& name, Index small, Index real) {
  const auto chosen = setup_.sizes.find(name);
  const Index n = chosen != setup_.sizes.end() ? chosen->second : ordered<T> ? small : real;
  if (n < small)
    throw std::invalid_argument("--size " + name + "=" + std::to_string(n) +
                                ": this derivation needs " + name +
                                " >= " + std::to_string(small));
  listener_.sized(name, n);
  return n;
}

template <Ring T> T Derivation<T>::integer() {
  if constexpr (std::same_as<T, Generic>)
    return Generic::variable(GF61::from_residue(random_.bits() >> 3));
  const int n = 1 + static_cast<int>(random_.below(3));
  return T(random_.sign() < 0 ? -n : n);
}

template <Ring T> T Derivation<T>::fraction() {
  if constexpr (std::same_as<T, Generic>) return integer();
  const int n = 2 + static_cast<int>(random_.below(3));
  return T(1 + static_cast<int>(random_.below(n - 1))) / T(n);
}

template <Ring T> Mat<T> Derivation<T>::matrix(Index rows, Index cols) {
  Mat<T> M(rows, cols);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) M(i, j) = integer();
  return M;
}
template <Ring T> Vec<T> Derivation<T>::vector(Index n) { return matrix(n, 1); }
template <Ring T> Vec<T> Derivation<T>::fractions(Index n) {
  Vec<T> x(n);
  for (Index i = 0; i < n; ++i) x[i] = fraction();
  return x;
}
template <Ring T> Vec<T> Derivation<T>::unit(Index n) {
  const Vec<T> w = vector(n);
  Vec<T> k = (T(-2) * w[0] / w.squaredNorm()) * w;
  k[0] += T(1);
  return k;
}

template <Ring T>
bool Derivation<T>::equal(At id, std::string statement, const Mat<T>& a, const Mat<T>& b) {
  if (a.rows() != b.rows() || a.cols() != b.cols())
    return settle(id, Kind::EQ, std::move(statement), false, "the shapes differ");
  double degree = 0;
  std::string detail;
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < a.cols(); ++j) {
      if constexpr (std::same_as<T, Generic>)
        degree = std::max(degree, Generic::degree(a(i, j), b(i, j)));
      if (detail.empty() && !(a(i, j) == b(i, j)))
        detail = "entry (" + std::to_string(i) + ", " + std::to_string(j) +
                 "): " + text(a(i, j)) + " and " + text(b(i, j));
    }
  const bool holds = detail.empty() && a.size() > 0;
  return settle(id, Kind::EQ, std::move(statement), holds, detail, degree);
}

template <Ring T>
bool Derivation<T>::differs(At id, std::string statement, const Mat<T>& wrong,
                            const Mat<T>& right) {
  if (wrong.rows() != right.rows() || wrong.cols() != right.cols())
    return settle(id, Kind::NE, std::move(statement), true, "the shapes differ");
  for (Index i = 0; i < wrong.rows(); ++i)
    for (Index j = 0; j < wrong.cols(); ++j)
      if (!(wrong(i, j) == right(i, j))) {
        const std::string entry =
            "entry (" + std::to_string(i) + ", " + std::to_string(j) + "): ";
        return settle(id, Kind::NE, std::move(statement), true,
                      (wrong.size() > 1 ? entry : "") + text(wrong(i, j)) + ", should be " +
                          text(right(i, j)));
      }
  return settle(id, Kind::NE, std::move(statement), false, "they are equal");
}

template <Ring T>
bool Derivation<T>::near(At id, std::string statement, double got, double want, double bound) {
  return settle(id, Kind::NUM, std::move(statement), std::abs(got - want) <= bound,
                text(got) + ", expected " + text(want) + " +- " + text(bound));
}

template <Ring T>
bool Derivation<T>::recomputes(At id, std::string statement, const Rational& got,
                               const Rational& printed) {
  return settle(id, Kind::CALC, std::move(statement), got == printed,
                text(Scalar<Rational>::to_double(got)) + ", printed " +
                    text(Scalar<Rational>::to_double(printed)));
}

template <Ring T>
bool Derivation<T>::counts(At id, std::string statement, double counted, double expected,
                           double within) {
  return settle(id, Kind::CNT, std::move(statement), std::abs(counted - expected) <= within,
                "counted " + text(counted) + (within > 0 ? ", stated " + text(expected) : ""));
}

template <Ring T> Picture Derivation<T>::picture(std::string_view name, const Mat<T>& M) {
  Picture p{std::string(name), M.rows(), M.cols(), {}};
  for (Index i = 0; i < M.rows(); ++i)
    for (Index j = 0; j < M.cols(); ++j) p.entries.push_back(text(M(i, j)));
  return p;
}

template <Ring T>
bool Derivation<T>::settle(At id, Kind kind, std::string statement, bool holds,
                           std::string detail, double degree) {
  claim_reached({.id = std::string(id.text),
                 .statement = std::move(statement),
                 .kind = kind,
                 .holds = holds,
                 .times = 1,
                 .degree = degree,
                 .detail = std::move(detail),
                 .line = id.line},
                listener_);
  return holds;
}

template class Derivation<Rational>;
template class Derivation<Generic>;

}  // namespace delta
