// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "checks/core/equivalence.hpp"

namespace delta {

/// Writes the case of a row as a dump: its inputs, what its form made of them in its scalar, and what the form shows on
/// its way. Over a prime field the numbers are no numbers of a kernel: there the same form over `mp50` stands for it.
/// \return the file   \throws UsageError
std::string write_case(const Row& r, const std::string& directory);

}  // namespace delta
