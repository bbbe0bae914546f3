// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "checks/report/environment.hpp"
#include "checks/report/terminal.hpp"
#include "checks/verify/verify.hpp"

namespace delta {

// Every report of `verify` is a function of its verdicts.

/// The verdict on one file.
std::string verify_text(const FileVerdict&, const Terminal&);
/// One line a file.
std::string verify_summary(const std::vector<FileVerdict>&, const Terminal&);
std::string verify_json(const std::vector<FileVerdict>&);
/// \param options  of the command that made it, without files and without what it wrote
std::string verify_html(const std::vector<FileVerdict>&, const Environment&, const std::string& options);

/// "passed", ..., or "unreadable".
std::string_view verdict_word(const FileVerdict&);
/// Where an element stands, in words.
std::string place_text(const BadPlace&);
/// A known mistake in words: its id, with the constant and the chunk length that it was found with.
std::string mistake_text(const Diagnosis&);

}  // namespace delta
