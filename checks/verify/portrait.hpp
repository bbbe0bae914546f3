// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "checks/verify/measured.hpp"
#include "checks/verify/subject.hpp"

namespace delta {

/// Tokens whose gates are of one strength, -ln alpha of the channel that forgets most.
struct Rung {
  std::string name;
  std::string range;  ///< of -ln alpha
  Index tokens = 0;   ///< in all lanes
  double ratio = 0;   ///< the worst of them: error of o over what is expected
};

/// What a report shows of a call beside the verdict on it.
struct Portrait {
  std::vector<std::pair<std::string, std::string>> facts;     ///< sizes, types, scale
  std::vector<std::pair<std::string, std::string>> metadata;  ///< as the file has it
  std::vector<Rung> gates;                                    ///< none, weak, typical, strong, resets; or empty
};

/// \param measured  every tensor of every lane, with its rows
Portrait portrait(const Dump& dump, const Subject& subject, const std::vector<Measured>& measured);

}  // namespace delta
