// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <string>
#include <vector>

#include "checks/core/compare.hpp"
#include "checks/core/registry.hpp"
#include "checks/mutants/mutants.hpp"

namespace delta {

/// The form of that name over one scalar; nullptr if there is none.
template <Ring T> const Form<T>* find_form(std::string_view id) {
  for (const Form<T>& f : kForms<T>)
    if (f.id == id) return &f;
  return nullptr;
}

/// Whether the form of that name, or the mutant, has a chunk length.
template <Ring T> bool is_chunked(std::string_view form) {
  const Mutant<T>* m = find_mutant<T>(form);
  return m ? m->chunked : find_form<T>(form)->chunked;
}

/// Whether the form can compute this problem at all (chunkwise needs scalar decay, read after it); of a mutant, whether
/// its mistake can be made there.
bool applies(const Rule& rule, std::string_view form, const Problem<double>& p);

/// The problem through a form, or through a mutant as if it were one, in scalar T. \param C chunk length
template <Ring T> Result<T> compute(const Rule& rule, std::string_view form, Index C, const Problem<T>& p);

/// The problem by the formula as its source prints it, in scalar T.
template <Ring T> Result<T> compute_paper(const Rule& rule, const Problem<T>& p);

/// The gradient of sum <dO, O> + <dS, S> with respect to every tensor of the problem, in scalar T.
/// \param d  dO and dS of each lane   \pre rule.has_gradient()
template <Ring T> Problem<T> compute_gradient(const Rule& rule, const Problem<T>& p, const Result<T>& d);

/// What a form shows on its way, rounded to double: by name, then for each recurrence in order (a lane, or a value
/// channel of one), then for each chunk, micro-step or leaf.
using Intermediates = std::map<std::string, std::vector<std::vector<Mat<double>>>>;

/// The same as `compute`, keeping what the form shows. `L_inverse` and the like are \f$ (I + L)^{-1} \f$.
template <Ring T>
Result<T> compute_watched(const Rule& rule, std::string_view form, Index C, const Problem<T>& p, Intermediates& shown);

/// The same problem in scalar T, element by element.
template <Ring T> Problem<T> over(const Problem<double>& p);

/// The same shapes with every number drawn uniformly from an exact scalar: a random point of the identity.
template <Ring T> Problem<T> generic(const Problem<double>& like, std::uint64_t seed);

}  // namespace delta
