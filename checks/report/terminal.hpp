// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "checks/core/printable.hpp"
#include "checks/core/ratio.hpp"

namespace delta {

/// What standard output can show.
struct Terminal {
  std::size_t width = 120;  ///< columns
  bool colour = false;

  /// The width is COLUMNS, or that of the terminal, or 120 where there is none. Colour needs a terminal that is not
  /// dumb and no NO_COLOR.
  static Terminal standard_output();

  /// A verdict in capitals, coloured if colours can be shown.
  std::string verdict(std::string_view name) const;
  /// Text broken between words; every line but the first begins with `indent` spaces. A word longer than a line is cut.
  std::string wrapped(std::string_view text, std::size_t indent = 0) const;
  /// A text behind a mark, wrapped within its own column.
  std::string item(std::string_view mark, std::string_view text) const;
  /// "  label        text", the same with all texts below each other.
  std::string field(std::string_view label, std::string_view text) const;
};

/// Columns that a terminal takes for it: its characters, each one column wide.
std::size_t columns(std::string_view utf8);

/// A table that fits. Its first `keys` columns name the row. Where it is too wide, the column `flexible` breaks its
/// text over lines, then the first of two keys becomes a line of its own above its rows, then the other columns are
/// laid out in blocks below each other, each with the key again.
struct TextTable {
  struct Column {
    std::string head;
    bool right = true;  ///< numbers
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
  std::size_t keys = 1, indent = 0;
  std::size_t flexible = static_cast<std::size_t>(-1);

  std::string text(std::size_t width) const;
};

}  // namespace delta
