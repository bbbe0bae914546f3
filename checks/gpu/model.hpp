// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>

#include "checks/gpu/quantities.hpp"

namespace delta::gpu {

/// What correct code of each version makes of a case: the errors of its form in rounded scalars, and where it works on
/// 16-bit operands those of its schedule. Everything is computed once.
class Model {
 public:
  explicit Model(const Case& c) : case_(c) {}

  /// The errors of the outputs that what is planned makes in this type.
  Expected outputs(const deltaref_gpu_plan_t& plan, std::int32_t dtype);

  /// The errors of its intermediates, over all heads.
  std::map<std::string, double> quantities(const deltaref_gpu_plan_t& plan, std::int32_t dtype);

  /// What sums in fp32 make of the outputs of kernels on tensor cores, relative to them.
  Expected sums();

  /// Why this case says nothing about that type: numbers that it cannot hold. Empty: it does.
  std::string outside(const deltaref_gpu_plan_t& plan, std::int32_t dtype) const;

 private:
  const Expected& form(const std::string& name, Index C);
  const std::map<std::string, double>& form_quantities(const std::string& name, Index C);

  Expected scheduled_outputs(const deltaref_gpu_plan_t& plan, const Format& f);

  const Case& case_;
  std::map<std::array<std::int32_t, 3>, Expected> scheduled_;  ///< by version, type and segments
  std::map<std::string, Expected> forms_;                      ///< in units of the unit roundoff, as are these
  std::map<std::string, std::map<std::string, double>> form_quantities_;
};

/// The exact intermediates of what is planned.
Quantities exact_quantities(const Case& c, const deltaref_gpu_plan_t& plan, Index n, Index h);

}  // namespace delta::gpu
