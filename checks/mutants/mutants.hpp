// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string_view>

#include "reference/core/micro_step.hpp"

namespace delta {

/// How q and k are normalised where the dump asks for it.
enum class Norm { as_asked, missing, twice, only_k, eps_on_mean, eps_as_floor };

/// A mistake in how a kernel takes its inputs.
struct InputFault {
  bool heads_tiled = false;     ///< key head j mod H for value head j
  bool lambda_missing = false;  ///< lambda = 0
  bool segment_leak = false;    ///< a packed sequence starts from the state that the one before it left
  Norm norm = Norm::as_asked;
};

/// A known mistake: one wrong line, apart from the reference. Each part that is set replaces the right one.
struct Mutant {
  std::string_view id;
  std::string_view what;                                             ///< the wrong line, as a formula
  InputFault input = {};                                             ///< what the kernel takes
  void (*stream)(Stream<double>&) = nullptr;                         ///< what it computes with
  Output<double> (*form)(const Stream<double>&, Index C) = nullptr;  ///< how it computes
  void (*output)(Output<double>&) = nullptr;                         ///< what it returns
  bool chunked = false;                                              ///< depends on a chunk length
  bool (*concerns)(const Stream<double>&) = nullptr;                 ///< nullptr: every stream
  double (*scale)(double) = [](double s) { return s; };              ///< the read-out scale it uses
};

/// Every known mistake, those that are simplest to make first.
std::span<const Mutant> mutants();

}  // namespace delta
