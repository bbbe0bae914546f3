// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "transcript.hpp"

namespace delta {

/// One derivation, run over one scalar.
struct Run {
  std::string_view scalar;  ///< "rational" or "gf61"
  std::string_view field;   ///< as people say it
  Record record;
};

/// Over every scalar that the derivation has and the setup allows.
std::vector<Run> runs_of(const Entry& entry, const Setup& setup);

/// Small integers can make a wrong form agree with the right one by accident, which proves nothing. Returns the setup
/// with the next seed whose numbers tell all such pairs apart; the setup itself if there is none, or if something else
/// fails.
Setup telling_seed(const Entry& entry, const Setup& setup);

}  // namespace delta
