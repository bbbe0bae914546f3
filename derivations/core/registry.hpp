// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>

#include "derivation.hpp"

namespace delta {

/// A derivation: a file of this folder, compiled for its scalars and kept as text, because the
/// text is the article.
struct Entry {
  std::string_view name;
  std::string_view source;  ///< the file itself
  void (*over_rationals)(Derivation<Rational>&);
  void (*over_field)(Derivation<Generic>&) =
      nullptr;  ///< nullptr: it needs an order, or it is about printed numbers

  std::string_view title() const;  ///< the file's first heading
};

/// Every derivation, in the order in which they are best read: the order of
/// derivations/CMakeLists.txt.
std::span<const Entry> derivations();

/// derivations/coverage.txt: which kinds of claim each formula needs.
std::string_view coverage_table();

}  // namespace delta
