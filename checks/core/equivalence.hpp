// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checks/core/compare.hpp"
#include "checks/core/families.hpp"
#include "checks/core/laws.hpp"
#include "checks/core/ratio.hpp"
#include "checks/core/registry.hpp"
#include "checks/proof/proof.hpp"

namespace delta {

/// One comparison of the equivalence table.
struct Row {
  std::string rule, form;
  std::string against;  ///< "paper", the formula as printed, "law: NAME", or "ball", an enclosure of the exact result
  std::string scalar, family, shape;
  std::string kind;  ///< "exact", "ratio" or "proof"
  double ratio = 0;  ///< worst of output and state; 0 for an exact row that holds
  Verdict verdict = Verdict::skipped;
  std::uint64_t seed = 0;
  std::string reason;  ///< why it was skipped or not trusted, or what is wrong
  std::string where;   ///< of a failure: first bad token and worst element
  Proof proof;         ///< of a proof: what is known of the error ...
  Expected bound;      ///< ... and what it must not exceed

  bool of_law() const { return against.starts_with("law: "); }
  bool of_proof() const { return kind == "proof"; }
  double bound_of(std::string_view tensor) const { return tensor == "o" ? bound.o : bound.state; }
  std::string law() const { return against.substr(std::string_view("law: ").size()); }  ///< \pre of_law()
};

/// Names of the scalars, exact ones first, in the order of the table's columns.
const std::vector<std::string>& scalar_names();
const std::vector<std::string>& form_names();

/// What to run; an empty list means all.
struct Selection {
  std::vector<std::string> rules, forms, families, scalars;
  std::vector<std::string> laws;  ///< if given, these laws and nothing else
  std::optional<Size> size;       ///< if given, this size and nothing else
  bool quick = false, full = false;
  bool prove = false;  ///< also prove the errors of the recurrence in double, at the quick size
  std::uint64_t seed = 1;
};

/// The side of the largest square matrix that a form may hold, a table of T x T scores or one chunk of C x C: 128 MiB
/// of doubles.
inline constexpr Index kLargestSquare = 4096;

/// Why a form, or a mutant, is not run at that size; empty if it is.
std::string too_large(std::string_view form, const Size& size);

/// The first token at which `steps` and `paper_step` of a rule disagree, at a random point of GF(2^61 - 1): no form can
/// then equal the printed formula. Empty if they agree.
std::string disagreement(const Rule& rule, std::uint64_t seed);

/// Runs the table on all cores. A rule that disagrees with itself makes one failed row; its forms are not run.
/// \param report  is called with each row, in an order that does not depend on timing
/// \param progress  is called with the cases done and their number
void check_equivalence(const Selection& what, const std::function<void(const Row&)>& report,
                       const std::function<void(std::size_t, std::size_t)>& progress = nullptr,
                       const std::vector<const Rule*>& among = rules());

/// The error that correct code of that form makes on that problem in formats of `bits` bits, in units of u = 2^-bits:
/// \f[ E = 2 \max_{i \le 6} \frac{\epsilon(p_i)}{2^{-p_i}} + 1 \f]
/// epsilon(p) is the error, as `Distance` measures it, of the same form run with every operation rounded to p bits.
/// Why. To first order the error of a run is a sum over its operations of (relative rounding error) x (sensitivity of
/// the output to that operation). The sensitivities belong to the form and the inputs, not to p; the rounding errors
/// are at most u and change from one p to the next as if drawn anew. So the errors at six other precisions, each over
/// its own u, are six draws of the quantity that is judged, and a result beyond their maximum by a factor is not
/// one of them. Conditioning, cancellation, the number of operations and the length of the input are all in the draws,
/// which is why one threshold serves every family, form, size and precision. 1 stands for the last rounding of a
/// result whose draws happen to be exact; 2 for the luck of few draws where few roundings decide, and for sums that
/// stand still (the same absolute error at p and at p - 1 bits). Measured without that factor, on 12,164 correct
/// results of two rules: error / (max + 1) has median 0.57, 99 % are below 1.2, 0.24 % above 1.5, 0.016 % above 2 and
/// none above 2.3, each half unit being about fifteen times rarer than the one before.
/// The argument is one of first order: draws with an error above 0.1 do not count, none left gives NaN, and
/// `check_equivalence` calls a case ill-posed where E u is not below 0.1.
Expected expected_error(const Rule& rule, std::string_view form, Index C, const Problem<double>& p,
                        const Result<DoubleDouble>& exact, int bits);

/// Holds a result in double against balls: its error is proved, and must be within `bound`. The ratio of the row is the
/// upper bound of the error over that, of o or of the state, whichever is larger.
void certify(Row& row, const Rule& rule, const Problem<double>& p, const Result<double>& got, const Expected& bound);

/// A bound on the chance that a wrong formula passes one comparison at a random point of GF(2^61 - 1).
double schwartz_zippel(const Size& size);

}  // namespace delta
