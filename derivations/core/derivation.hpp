// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "claim.hpp"
#include "generic.hpp"
#include "reference/core/linalg.hpp"
#include "reference/core/random.hpp"
#include "reference/scalars/rational.hpp"

namespace delta {

/// \cond
// Eigen compiles a product anew in every file that has one. These are compiled once, in
// derivation.cpp, for matrices and their transposes; overload resolution prefers them to Eigen's.
template <class T>
concept Drawn = std::same_as<T, Rational> || std::same_as<T, Generic>;
template <class T> using Transposed = Eigen::Transpose<const Mat<T>>;
template <Drawn T> Mat<T> operator*(const Mat<T>& A, const Mat<T>& B);
template <Drawn T> Mat<T> operator*(const Mat<T>& A, const Transposed<T>& B);
template <Drawn T> Mat<T> operator*(const Transposed<T>& A, const Mat<T>& B);
template <Drawn T> Vec<T> operator*(const Mat<T>& A, const Vec<T>& x);
/// \endcond

/// What the command line can choose.
struct Setup {
  std::map<std::string, Index> sizes;  ///< overrides of the sizes, by name
  std::uint64_t seed = 1;
  std::string scalar;  ///< "rational" or "gf61"; empty: both
};

/// \cond
// A number as it is printed: fractions for rationals, the residue of least magnitude for the field.
std::string text(const Rational&);
std::string text(const Generic&);
std::string text(double);
/// \endcond

/// The numbers that have an order: over them, inequalities can be claimed.
template <class T> inline constexpr bool ordered = Real<T>;

/// What a derivation runs in: it draws the numbers, and every claim is made to it.
/// Over the rationals the sizes are small and the numbers readable. Over the prime field the
/// sizes are those of real chunks, every number is uniformly random, and an equality proves the
/// identity up to the stated probability.
template <Ring T> class Derivation {
 public:
  Derivation(const Setup& setup, Listener& listener);

  /// A size with its name, [small] over the rationals and [real] over the prime field.
  Index size(const std::string& name, Index small, Index real);

  T integer();             ///< not zero: -3 .. 3
  T fraction();            ///< in (0, 1): 1/2, 2/3, 3/4, ...
  Vec<T> vector(Index n);  ///< of integers
  Vec<T> fractions(Index n);
  Mat<T> matrix(Index rows, Index cols);
  Vec<T> unit(Index n);  ///< |k| = 1 exactly: the first axis, reflected at a random vector
  Random& random() { return random_; }

  /// Shows matrices, vectors and numbers with their names, beside each other where they fit.
  template <class... Rest> void show(At name, const Mat<T>& M, const Rest&... rest) {
    std::vector<Picture> pictures;
    collect(pictures, name.text, M, rest...);
    listener_.shown(name.line, pictures);
  }
  template <class... Rest> void show(At name, const T& x, const Rest&... rest) {
    show(name, cell(x), rest...);
  }

  /// \name Claims
  /// @{
  bool equal(At id, std::string statement, const Mat<T>& a, const Mat<T>& b);
  bool equal(At id, std::string statement, const T& a, const T& b) {
    return equal(id, statement, cell(a), cell(b));
  }
  /// `wrong` is a form somebody might write, `right` the correct one: they must differ.
  bool differs(At id, std::string statement, const Mat<T>& wrong, const Mat<T>& right);
  bool differs(At id, std::string statement, const T& a, const T& b) {
    return differs(id, statement, cell(a), cell(b));
  }
  /// a <= b
  bool at_most(At id, std::string statement, const T& a, const T& b) requires ordered<T> {
    return settle(id, Kind::INEQ, std::move(statement), a <= b, text(a) + " <= " + text(b));
  }
  /// a < b
  bool less(At id, std::string statement, const T& a, const T& b) requires ordered<T> {
    return settle(id, Kind::INEQ, std::move(statement), a < b, text(a) + " < " + text(b));
  }
  /// |got - want| <= bound
  bool near(At id, std::string statement, double got, double want, double bound);
  /// A fact about floating-point numbers that is no distance: kind NUM.
  bool floating(At id, std::string statement, bool fact) {
    return settle(id, Kind::NUM, std::move(statement), fact, "");
  }
  /// A printed number is what its cells give.
  bool recomputes(At id, std::string statement, const Rational& got, const Rational& printed);
  /// A printed list is what its rule generates.
  bool lists(At id, std::string statement, const std::string& got, const std::string& printed) {
    return settle(id, Kind::CALC, std::move(statement), got == printed,
                  got + ", printed " + printed);
  }
  /// So many operations (or bytes) were counted.
  bool counts(At id, std::string statement, double counted, double expected, double within = 0);
  bool shape(At id, std::string statement, bool conforms) {
    return settle(id, Kind::SHAPE, std::move(statement), conforms, "");
  }
  /// Any other exact fact of kind EQ, as a truth value; over both scalars, as every EQ.
  bool holds(At id, std::string statement, bool fact) {
    return settle(id, Kind::EQ, std::move(statement), fact, "");
  }
  void remark(At id, std::string statement) {
    settle(id, Kind::Q, std::move(statement), true, "");
  }
  /// @}

 private:
  static Mat<T> cell(const T& x) { return Mat<T>::Constant(1, 1, x); }
  void collect(std::vector<Picture>&) {}
  template <class... Rest>
  void collect(std::vector<Picture>& out, std::string_view name, const Mat<T>& M,
               const Rest&... rest) {
    out.push_back(picture(name, M));
    collect(out, rest...);
  }
  template <class... Rest>
  void collect(std::vector<Picture>& out, std::string_view name, const T& x,
               const Rest&... rest) {
    collect(out, name, cell(x), rest...);
  }
  static Picture picture(std::string_view name, const Mat<T>& M);
  bool settle(At id, Kind kind, std::string statement, bool holds, std::string detail,
              double degree = 0);

  const Setup& setup_;
  Listener& listener_;
  Random random_;
};

/// Every claim ends here. The debugger stops here: `up` is the derivation, with its matrices.
void claim_reached(const Claim& claim, Listener& listener);

#define DELTA_PRODUCTS(EXTERN, T)                                        \
  EXTERN template Mat<T> operator*(const Mat<T>&, const Mat<T>&);        \
  EXTERN template Mat<T> operator*(const Mat<T>&, const Transposed<T>&); \
  EXTERN template Mat<T> operator*(const Transposed<T>&, const Mat<T>&); \
  EXTERN template Vec<T> operator*(const Mat<T>&, const Vec<T>&);
DELTA_PRODUCTS(extern, Rational)
DELTA_PRODUCTS(extern, Generic)
extern template class Derivation<Rational>;
extern template class Derivation<Generic>;

}  // namespace delta
