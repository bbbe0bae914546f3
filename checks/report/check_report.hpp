// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checks/core/equivalence.hpp"
#include "checks/report/environment.hpp"
#include "checks/report/terminal.hpp"

namespace delta {

/// All rows of one place of a table.
struct Cell {
  std::map<Verdict, int> count;
  double worst = 0;
  bool exact = false, ran = false;
  std::string family;  ///< of the worst ratio

  void add(const Row& r);
  bool failed() const { return count.contains(Verdict::failed); }
  int total() const;
  /// "=", "NOT =", a ratio, "-" where nothing applies, "?" where every case is ill-posed.
  std::string text() const;
};

/// What is proved of the recurrence in double under one rule.
struct RuleProof {
  int cases = 0, certified = 0;
  double ratio = -1;  ///< the largest upper bound of an error over the bound that it must keep, and the two
  Bounds error;
  double bound = 0;
  std::string family;

  void add(const Row& r);
};

/// What `check` found, row by row; every report of it is a function of this.
struct CheckSummary {
  std::map<std::pair<std::string, std::string>, std::map<std::string, Cell>> table;  ///< rule, form; scalar
  std::map<std::string, std::map<std::string, Cell>> families;                       ///< family; scalar
  std::map<std::string, Cell> laws;
  std::map<std::string, RuleProof> proofs;  ///< rule
  std::map<Verdict, int> count;
  std::map<std::string, int> skipped;  ///< reason and how often, of skipped and untrusted rows
  std::vector<Row> failures;           ///< the first fifty
  double chance = 0;                   ///< that a wrong formula passes a case over gf61
  double seconds = 0;

  void add(const Row& r);
  int counted(Verdict v) const { return count.contains(v) ? count.at(v) : 0; }
  bool ran() const;     ///< whether any case was decided
  bool passed() const;  ///< whether some were, and none failed
};

/// The command that runs one row alone, with nothing to add.
std::string reproducer(const Row& r);

/// A failed row: what it compared, where it is wrong, and the command that runs it alone.
std::string failure_text(const Row& r, const Terminal& terminal);
/// The tables, what their marks mean, and the counts.
std::string check_text(const CheckSummary& s, const Terminal& terminal);
/// The same as one page. \param command  as the user gave it, without what it wrote
std::string check_html(const CheckSummary& s, const Environment& where, const std::string& command);

}  // namespace delta
