// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checks/report/html.hpp"
#include "reference/core/linalg.hpp"

namespace delta {

// Pictures. Each is an SVG that holds shapes and no text, stretched to the width that there is; its labels are HTML
// beside it, so that they keep their size on a phone and on paper. Colours are classes of the style sheet: light, dark
// and print have their own. Whatever a colour says is also said by a position, a shape or a number.

/// What a picture shows, for everyone: `id` is unique on the page, `title` names it, `says` tells what is to be seen.
struct Caption {
  std::string id, title, says;
};

/// Marks along an axis: position in [0, 1] and label.
using Ticks = std::vector<std::pair<double, std::string>>;

/// Marks of n cells numbered from 0, at most `most` of them, at multiples of a power of two (or 5, 10, 20, ...).
Ticks cell_ticks(Index n, std::size_t most, bool binary);

/// Cells [rows x columns], each a ratio: error over what is expected of correct code. Negative: nothing was judged
/// there. Columns beyond 160 are drawn together, the largest deciding.
struct HeatMap {
  Caption caption;
  Mat<double> ratio;
  std::string row_name, column_name;
  Index per_column = 1;                         ///< how many tokens a column stands for
  bool binary = true;                           ///< ticks at powers of two
  Index chunk = 0;                              ///< lines between chunks of so many tokens; 0: none
  std::optional<std::pair<Index, Index>> mark;  ///< row and column of a place to point at
  std::string mark_says;
};
Html draw(const HeatMap&);

/// What the colours of heat maps mean; once a page.
Html heat_legend();

/// The class of the style sheet that colours a ratio.
std::string heat_class(double ratio);

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x in [0, 1], y
};

/// Curves over a common axis. With `thresholds` a band marks where a ratio is marginal, and what is above it, failed.
struct Plot {
  Caption caption;
  std::string x_name, y_name;
  Ticks x_ticks;
  std::vector<Series> series;
  bool log = true, thresholds = false, steps = false, dots = false;
};
Html draw(const Plot&);

/// The largest of each column, as a curve of steps over the columns.
Series envelope(std::string name, const Mat<double>& ratio);

/// A ratio as a bar from 0.1 to 1000 with the thresholds.
Html ratio_bar(double ratio);

}  // namespace delta
