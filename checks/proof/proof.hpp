// SPDX-License-Identifier: Apache-2.0
// Errors that are proved: the exact result is enclosed in balls, with as many bits as it takes.
#pragma once
#include <string>
#include <vector>

#include "checks/core/registry.hpp"

namespace delta {

class Subject;

/// A number that is known to lie between two doubles.
struct Bounds {
  double lower = 0, upper = 0;
  bool contains(double x) const { return lower <= x && x <= upper; }
};

/// What is proved of one output.
struct Proved {
  std::string tensor;  ///< "o" or "final_state"
  /// Of the lane whose error is largest, as verdicts measure it: max_t |o_t - o*_t| / max_t |o*_t|; of states
  /// |S - S*|_F / |S*|_F.
  Bounds error;
  Index elements = 0;     ///< how many were looked at
  Index rounded = 0;      ///< so many are the exact number, rounded to the nearest one of the tensor's type
  Index not_rounded = 0;  ///< so many are not; of the rest it is not known: they nearly are
};

/// What is proved of a kernel's outputs.
struct Proof {
  std::vector<Proved> outputs;
  Index lanes = 0, of_lanes = 0;    ///< so many heads of sequences were proved, of so many
  Index tokens = 0, of_tokens = 0;  ///< so many tokens from the start of each; if not all, states are not proved
  long bits = 0;                    ///< of the balls, at most
  bool sharp = true;                ///< the bounds of each error are within a thousandth of it
  bool whole() const { return lanes == of_lanes && tokens == of_tokens; }
  /// The output of that name; nullptr if nothing is proved of it.
  const Proved* find(std::string_view tensor) const {
    for (const Proved& p : outputs)
      if (p.tensor == tensor) return &p;
    return nullptr;
  }
};

/// What a proof may take by default, roughly.
inline constexpr double kProofSeconds = 20;

/// Whether this build has balls.
bool have_balls();
/// \throws UsageError that says what to install, if it has none
void require_balls();

/// Proves the errors of the outputs in a dump: of all of it, or of as much as takes so many seconds of each thread.
/// Decays given as logarithms and norms are enclosed as well: nothing is taken from a double that the file does not
/// hold. \param first  the head of a sequence to begin with   \throws UsageError
Proof prove(const Subject& s, Index first, int threads, double seconds = kProofSeconds);

/// Proves the errors of a result that is claimed to be the problem's.
Proof prove(const Rule& rule, const Problem<double>& p, const Result<double>& got);

}  // namespace delta
