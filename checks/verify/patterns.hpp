// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "checks/verify/measured.hpp"
#include "checks/verify/subject.hpp"

namespace delta {

/// Where an output is wrong, when that can be said exactly: every place that is named is wrong in some lane, and every
/// other place is right in all of them.
struct Pattern {
  std::string tensor;  ///< "o", "final_state", "dq", ...
  std::string id;      ///< "sequences", "heads", "tokens", "channels" (of a state: "value-channels", "key-channels");
                       ///< "repeats"; tokens are counted from the start of their sequence
  std::string text;    ///< in words: "only heads >= 2"
};

/// The patterns of a wrong output. Along each axis on its own, a place is wrong from `kFailed` on and right below
/// `kMarginal`; one in between, or no gap between the two kinds, and nothing is said of that axis.
/// \param measured  each tensor of each lane
/// \param search  whether to look for lanes that hold the output of another one, which computes all of them again
std::vector<Pattern> find_patterns(const Subject& subject, const std::vector<Measured>& measured, bool search,
                                   int threads);

/// The places of an axis in words, from which of them are wrong: "only heads >= 2", "from token 64 on", "rows 4 to 11
/// of each chunk of 16", "channels with period 4: 3, 7, 11, ...". Empty if no short phrase is exact.
/// \param what  one place of the axis: "head", "token", "channel"
std::string phrase(const std::vector<bool>& wrong, const std::string& what);

}  // namespace delta
