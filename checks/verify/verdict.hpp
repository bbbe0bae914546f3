// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "checks/verify/subject.hpp"
#include "checks/verify/verify.hpp"

namespace delta {

/// Counts the elements of a fp32 state that a narrow format holds although it does not hold the exact value. A state
/// that was kept in that format has only such elements; chance gives one in 2^16 (bf16) or 2^13 (fp16).
struct NarrowState {
  Format format;
  Index telling = 0, held = 0;

  void count(const Mat<double>& want, const Mat<double>& got);
  void add(const NarrowState& other) { telling += other.telling, held += other.held; }
  bool certain() const { return telling >= 8 && held == telling; }
};

/// All that the lanes of a file have shown.
struct Evidence {
  std::vector<Measured> measured;  ///< tensor by tensor of each lane
  NarrowState bf16{kBf16}, fp16{kFp16};
};

/// From all lanes to one verdict: a kernel that fails in one lane has failed. Fills the outputs, the verdict, its
/// reason and the places; what is expected of each lane is completed from the others.
void conclude(const Subject& subject, Evidence& evidence, FileVerdict& v);

/// An error as large as that of tf32 operands is excused, unless a known mistake or a place explains it: then it
/// failed.
void withdraw_excuse(FileVerdict& v);

}  // namespace delta
