// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "checks/core/ratio.hpp"
#include "checks/dump/dump.hpp"
#include "checks/mutants/diagnosis.hpp"
#include "checks/verify/subject.hpp"

namespace delta {

/// The verdict on one output of a kernel: the figures of the lane with the largest ratio. All errors are relative.
struct Judged {
  bool present = false;
  double error = 0;      ///< o: max_t |o_t - o*_t| / max_t |o*_t|;  final_state: |S - S*|_F / |S*|_F
  double expected = 0;   ///< the same of correct code in that precision
  double ratio = 0;      ///< error / expected
  double rel_error = 0;  ///< Frobenius, over everything; information only
};

/// One element of an output.
struct BadPlace {
  std::string tensor;  ///< "o" or "final_state"
  Index b = 0;         ///< batch entry of o; sequence of a state
  Index t = 0;         ///< token of o, counted in the tensor; row (value channel) of a state
  Index head = 0, channel = 0;
  double want = 0, got = 0;
};

/// How the reference was computed, and its own error: its distance from a second computation.
struct JudgeInfo {
  std::string how, against;
  double error_o = 0, error_state = 0;
};

struct FileVerdict {
  std::string file, rule;
  Verdict verdict = Verdict::skipped;
  bool unreadable = false;  ///< `reason` says why; nothing else holds
  std::string reason;
  Judged o, final_state;
  double ill_posed = 0;  ///< the error of correct code in the lanes where it has no digit left
  std::string model;     ///< where the expected error comes from
  JudgeInfo judge;
  std::optional<std::string> grade;  ///< the class of implementation that the error looks like
  std::optional<BadPlace> first_bad, worst;
  std::vector<Diagnosis> diagnosis;
  std::vector<std::string> notes;

  double ratio() const { return std::max(o.ratio, final_state.ratio); }
};

/// Judges one dump. \param threads lanes are spread over so many  \throws UsageError
FileVerdict verify(const Dump& dump, const DumpOptions& options, int threads);

/// Reads and judges one file; what is wrong with the file is in the verdict, nothing is thrown.
FileVerdict verify_file(const std::string& path, const DumpOptions& options, int threads);

std::string report_text(const FileVerdict&);
std::string report_json(const std::vector<FileVerdict>&);

}  // namespace delta
