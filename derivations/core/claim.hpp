// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace delta {

/// How a claim is decided.
///   EQ     two expressions are equal, exactly
///   NE     a form that somebody might write differs from the right one: a witness is shown
///   INEQ   an inequality, in exact arithmetic
///   NUM    a floating-point result within a stated bound
///   CALC   a printed number, computed again from the numbers it is made of
///   CNT    operations counted by running the code on a scalar that counts
///   SHAPE  a statement on sizes
///   Q      a remark from a source; nothing to run
enum class Kind { EQ, NE, INEQ, NUM, CALC, CNT, SHAPE, Q };
std::string_view name(Kind);

/// Why one scalar is enough for claims of this kind; empty for EQ and NE, which have to hold over both.
std::string_view why_one_scalar(Kind);

/// One claim of a derivation and what became of it. A claim inside a loop is one claim that was
/// checked many times.
struct Claim {
  std::string id;         ///< of the formula table
  std::string statement;  ///< what is claimed
  Kind kind = Kind::EQ;
  bool holds = true;  ///< every time
  int times = 0;      ///< how often it was checked
  double degree =
      0;  ///< of the polynomial that vanishes if the claim holds; 0: nothing is left to chance
  std::string detail;  ///< a witness, a count, a number
  unsigned line = 0;   ///< where it is claimed
};

/// A matrix as it is shown: its name, its shape and its entries as text.
struct Picture {
  std::string name;
  long rows = 0, cols = 0;
  std::vector<std::string> entries;  ///< row by row
};

/// An identifier, and the line that mentions it: an argument of this type records its caller.
struct At {
  std::string_view text;
  unsigned line;
  template <class S>
  At(const S& s, std::source_location l = std::source_location::current())
      : text(s), line(l.line()) {}
};

/// Who listens to a derivation while it runs.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void sized(std::string_view /*name*/, long /*size*/) {}
  virtual void shown(unsigned /*line*/, const std::vector<Picture>&) {}
  virtual void claimed(const Claim&) {}  ///< for every check, also the repeated ones
};

}  // namespace delta
