// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <iosfwd>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "registry.hpp"

namespace delta {

/// The claims of one run, repeated checks of one claim joined, and the sizes it ran with.
class Record : public Listener {
 public:
  std::vector<Claim> claims;
  std::vector<std::pair<std::string, long>> sizes;

  void sized(std::string_view name, long size) override { sizes.emplace_back(name, size); }
  void claimed(const Claim& claim) override { join(claim); }
  bool all_hold() const;

 protected:
  /// Adds one check; true if the claim was not met before.
  bool join(const Claim& claim);
};

/// How a walk is printed.
struct Style {
  bool colour = false;
  bool markdown = false;  ///< a page for the documentation
  bool code = false;      ///< also the lines that draw, show and check
  bool step = false;      ///< wait for Enter after each claim
};

/// Prints a derivation while it runs: the file's own text, and between its lines what they
/// computed.
class Transcript : public Record {
 public:
  Transcript(const Entry& entry, std::ostream& out, const Style& style);
  void shown(unsigned line, const std::vector<Picture>& pictures) override;
  void claimed(const Claim& claim) override;
  void finish();  ///< prints what is left of the file

 private:
  void print_until(unsigned line);
  void print_line(unsigned line);
  void print_paragraph();
  void fence(bool open);
  std::string paint(std::string_view code, const std::string& s) const;
  bool over_after(unsigned line) const;
  unsigned end_of_statement(unsigned line) const;

  std::string_view name_;
  std::ostream& out_;
  Style style_;
  std::vector<std::string_view> lines_;
  std::set<unsigned> drawn_;  // lines whose pictures have been shown
  std::string paragraph_;     // prose that is not printed yet
  unsigned next_ = 1;         // the first line that is not printed yet
  unsigned last_ = 0;         // the last line of the article
  bool body_ = false;         // inside the derivation's own function: its indent is not shown
  bool fenced_ = false;       // inside a code block (Markdown)
  char above_ = 0;  // what the line above was: 'p'rose, 'c'ode, 'r'esult, 'm'atrix, ' ' blank
};

}  // namespace delta
