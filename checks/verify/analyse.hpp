// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "checks/dump/dump.hpp"
#include "checks/verify/subject.hpp"
#include "derivations/analysis/stability.hpp"

namespace delta {

/// One head of one sequence, step by step and chunk by chunk: what a plot shows. A step is a micro-step of the rule,
/// Analysis::micro_steps of them a token.
struct AnalysisSeries {
  std::vector<double> factor;  ///< 1 - beta y . x: what the step leaves of its own sample's error
  std::vector<double> norm;    ///< of the step's transition
  std::vector<double> bound;   ///< on that norm: alpha G for every q and k of these lengths, else the norm itself
  bool every_vector = true;    ///< each bound holds for every q and k of these lengths
  std::vector<InverseGrowth> inverse;  ///< per chunk
  double growth = 1;                   ///< of the state over the sequence, as it happened
  double search = 0;                   ///< growth per step in the worst order of these steps that was found
};

/// The same, summed up. Tokens count from the begin of their sequence.
struct HeadAnalysis {
  Index sequence = 0, head = 0;
  double least_factor = 1, largest_factor = 1;
  double norm = 0;  ///< the largest one-step norm
  Index norm_at = 0;
  Certificate certificate;  ///< places are tokens
  bool every_vector = true;
  double growth = 1, search = 0;
  InverseGrowth inverse;  ///< of the chunk with the worst condition
  Index chunk = 0;        ///< which
};

struct Analysis {
  Index chunk_length = 64, micro_steps = 1;
  std::vector<HeadAnalysis> heads;  ///< the worst first; heads without a token are left out
  AnalysisSeries series;            ///< of the first of them
};

/// Of value head j of sequence n. A rule with one strength per value channel is dv recurrences: the worst is returned.
AnalysisSeries analysis_series(const Subject& subject, Index n, Index j, Index chunk_length = 64);

/// How a rule treats its own state on the inputs of this dump. No output of the kernel is looked at.
/// \throws UsageError as the verdict does
Analysis analyse(const Dump& dump, const DumpOptions& options, int threads);

}  // namespace delta
