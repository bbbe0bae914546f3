// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>

#include "checks/core/errors.hpp"

namespace delta {

/// One element of an output.
struct BadPlace {
  std::string tensor;  ///< "o", "final_state", "dq", ...
  Index b = 0;         ///< batch entry; of a state, its sequence
  Index t = 0;         ///< token, counted in the tensor; of a state, its row (value channel)
  Index head = 0, channel = 0;
  double want = 0, got = 0;
};

/// Sums over a tensor, for what is reported of it as a whole.
struct Total {
  double want2 = 0, error2 = 0;
  bool zero_want = true, zero_got = true, finite = true;

  void add(const Total& x);
  double relative_error() const { return relative(std::sqrt(error2), std::sqrt(want2)); }
};

/// One tensor of one lane against the exact one. All errors are relative, as `measure` says.
struct Measured {
  std::string tensor;
  Measure measure = Measure::worst_row;
  Index n = 0, head = 0;       ///< sequence; value head, or key head where the tensor has those
  Index b = 0, first_row = 0;  ///< where its rows begin in the tensor: batch entry and token; of a state, n and 0
  Index numbers = 1;           ///< how many of its numbers vary on their own

  double error = 0;        ///< of the kernel
  double expected = 0;     ///< of correct code: the largest of its draws
  double least = 0;        ///< the smallest of them
  double tf32 = 0;         ///< of correct fp32 code whose products take tf32 operands
  double reference = 0;    ///< of the reference
  bool well_posed = true;  ///< correct code has a digit left to show, in this tensor and in those that depend on it

  Total total;
  Vec<double> rows;      ///< error of each row; of a state, over the share that each has in an even one
  Vec<double> channels;  ///< largest error of each channel, over that share
  std::optional<BadPlace> first_bad, worst;
  double badness = 0;  ///< error of `worst`, over what is expected
};

/// Fills `error` and `total`.
void compare(Measured&, const Mat<double>& want, const Mat<double>& got);

/// Fills what says where the error is: the first row beyond what is expected, the worst element, rows and channels.
/// \pre `expected` is known
void locate(Measured&, const Mat<double>& want, const Mat<double>& got);

}  // namespace delta
