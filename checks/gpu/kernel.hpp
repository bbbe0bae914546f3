// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <string>
#include <vector>

#include "checks/core/registry.hpp"
#include "gpu/deltaref_gpu.hpp"

namespace delta::gpu {

/// How a problem is handed to the kernels.
struct Call {
  std::int32_t version = DELTAREF_AUTO, dtype = DELTAREF_FP32, layout = DELTAREF_STATE_VK, rows = 0;
  std::int32_t segments = 0;  ///< of a sequence; 0: as the planner likes
  bool log_gate = false;      ///< the decay goes in as its natural logarithm
  bool l2norm = false;        ///< q and k are normalised by the kernel
  bool padded = false;        ///< rows of every tensor lie further apart than they must
  bool trace = false;         ///< intermediates come back too
  unsigned char fill = 0xff;  ///< outputs and workspace hold this byte before (0xff: NaN in every type)
};

/// The same call, with its intermediates.
inline Call with_trace(Call call) { return call.trace = true, call; }

/// What came back. A matrix is in `traces` under the name that deltaref_gpu.h gives it, one a chunk slot and head (or a
/// token and head), row after row.
struct Answer {
  Result<double> result;
  std::map<std::string, std::vector<double>> traces;
  deltaref_gpu_plan_t plan{};
  bool untouched = true;  ///< nothing was written around the outputs, nor between their rows
  std::string bits;       ///< o and the final state as they came: two runs are compared by these
};

inline std::string_view dtype_name(std::int32_t dtype) {
  constexpr std::string_view names[] = {"bf16", "fp16", "fp32", "fp64"};
  return names[dtype];
}
/// The kernels' number of a rule, or -1 if they do not have it.
std::int32_t rule_number(const RuleInfo& rule);

/// Runs the problem on the device and waits for it. \throws Error with the sentence that says why it could not
Answer run_on_device(const RuleInfo& rule, const Problem<double>& p, const Call& call);

/// Whether the last head of the last sequence gives the bits it gives alone, in tensors of more than 2^31 elements.
/// \return empty, or why it could not be tried (the device has too little memory)
std::string far_offsets(std::int32_t version, bool& same);

}  // namespace delta::gpu
