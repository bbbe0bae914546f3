// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json.hpp>

#include "derivations/core/transcript.hpp"

namespace delta {

using Json = nlohmann::ordered_json;

/// One derivation, run over one scalar.
struct Run {
  std::string_view scalar, field;
  Record record;
};

/// Over every scalar that the derivation and the setup allow.
std::vector<Run> run(const Entry& entry, const Setup& setup);

}  // namespace delta
