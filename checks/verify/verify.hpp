// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "checks/core/ratio.hpp"
#include "checks/dump/dump.hpp"
#include "checks/proof/proof.hpp"
#include "checks/verify/analyse.hpp"
#include "checks/verify/diagnosis.hpp"
#include "checks/verify/measured.hpp"
#include "checks/verify/patterns.hpp"
#include "checks/verify/portrait.hpp"
#include "checks/verify/subject.hpp"

namespace delta {

/// Errors over what is expected, for pictures: a column for each head, the largest of all sequences.
struct ErrorMap {
  Mat<double> ratio;  ///< [rows x heads]
  Index bin = 1;      ///< tokens that share a row, the largest of them
};

/// The verdict on one tensor of a kernel: the figures of the lane with the largest ratio. All errors are relative.
struct Judged {
  std::string tensor;    ///< "o", "final_state", or a gradient: "dq", "dk", ...
  double error = 0;      ///< max_t |o_t - o*_t| / max_t |o*_t|; of states |S - S*|_F / |S*|_F
  double expected = 0;   ///< the same of correct code in that precision, the largest of its draws
  double least = 0;      ///< the smallest of them: the spread between correct builds
  double ratio = 0;      ///< error / expected
  double rel_error = 0;  ///< Frobenius, over everything; information only
  double reference = 0;  ///< error of the reference: its distance from a second computation, largest lane
  ErrorMap by_token;     ///< of states by row, the value channel
  ErrorMap by_channel;   ///< of states by key channel
};

/// What a class of implementations makes of the outputs: Frobenius, relative, over the lanes that were graded.
struct ClassError {
  std::string grade, model;  ///< the class, and the build that stands for it
  double o = 0;
  std::optional<double> final_state;
  double explained = 0;  ///< share of the kernel's square error that is this model's; negative if it is none of it
};

/// The intermediate whose rounding makes most of the error of an output.
struct Dominant {
  std::string tensor, intermediate;
  double share = 0;  ///< of the expected square error, that goes if it is kept in fp32
};

/// How the reference was computed, and what it was held against.
struct JudgeInfo {
  std::string how, against;
};

/// The verdict on one file, and all that a report says of it.
struct FileVerdict {
  std::string file, rule;
  Verdict verdict = Verdict::skipped;
  bool unreadable = false;  ///< `reason` says why; nothing else holds
  bool excused = false;     ///< marginal because the error is that of tf32 operands
  std::string reason;
  std::vector<Judged> outputs;  ///< every tensor that was judged: o, final_state if there is one, gradients
  double ill_posed = 0;         ///< the error of correct code in the lanes where it has no digit left
  std::string model;            ///< where the expected error comes from
  JudgeInfo judge;
  std::optional<std::string> grade;  ///< the class of implementation that the error looks like
  std::string grade_reason;          ///< how that was told, and the model that comes closest
  std::vector<Dominant> dominant;    ///< of each output, for a kernel of that class
  std::vector<ClassError> classes;   ///< the errors of every class that was tried, the closest build of each
  std::optional<BadPlace> first_bad, worst;
  std::vector<Diagnosis> diagnosis;
  std::vector<Pattern> patterns;   ///< where a failed output is wrong
  std::vector<std::string> hints;  ///< to be read first: something in the file is probably misnamed
  std::vector<std::string> notes;
  Portrait portrait;
  std::optional<Proof> proof;        ///< of the errors, where one was asked for
  std::optional<Analysis> analysis;  ///< where it was asked for

  /// The tensor of that name; nullptr if it was not judged.
  const Judged* find(std::string_view tensor) const;
  /// The tensor with the largest ratio. \pre !outputs.empty()
  const Judged& worst_output() const;
  double ratio() const { return outputs.empty() ? 0 : worst_output().ratio; }
};

/// Judges one dump. \param threads lanes are spread over so many  \throws UsageError
FileVerdict verify(const Dump& dump, const DumpOptions& options, int threads);

/// Reads and judges one file; what is wrong with the file is in the verdict, nothing is thrown.
FileVerdict verify_file(const std::string& path, const DumpOptions& options, int threads);

}  // namespace delta
