// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "checks/verify/verify.hpp"

namespace delta {

/// Proves the errors of a dump that was judged, beginning with its worst head, and puts them into the verdict. A
/// reference that the proof contradicts makes the verdict untrusted. Gradients are not proved. \throws UsageError
void prove_errors(FileVerdict& v, const DumpOptions& options, int threads);

/// What was proved, one line an output, and of how much of the file.
std::vector<std::string> proof_lines(const Proof& proof);

}  // namespace delta
