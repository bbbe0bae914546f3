// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checks/core/ratio.hpp"

namespace delta::gpu {

/// One comparison of a kernel with the reference, or one law that it must keep.
struct Row {
  std::string kernel, rule, family, shape, dtype;
  std::string what;  ///< "o, state", the id of an intermediate, or the name of a law
  double ratio = 0;
  Verdict verdict = Verdict::skipped;
  std::string reason;
  std::map<std::string, double> figures;  ///< measured on the way, for information
};

using Report = std::function<void(const Row&)>;

struct Selection {
  std::vector<std::string> rules, families;
  std::vector<int> versions;
  bool quick = false;  ///< two families and small sizes: for tools that slow a program down a hundred times
  std::uint64_t seed = 1;
  double seconds = 1e9;  ///< no case is started after this many; what was left out is reported as skipped
};

/// Every kernel on every family, its intermediates, and the laws. \param report  is called from one thread at a time
void check_kernels(const Selection& what, const Report& report);

}  // namespace delta::gpu
