// SPDX-License-Identifier: Apache-2.0
#include "checks/report/svg.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "checks/core/ratio.hpp"

namespace delta {
namespace {

/// Upper ends of the classes of a ratio; what is not finite comes after the last.
constexpr std::array<double, 8> kClasses{0.5, 1, kMarginal, kFailed, 5, 20, 100, INFINITY};

std::size_t class_of(double ratio) {
  if (!std::isfinite(ratio)) return kClasses.size();
  return static_cast<std::size_t>(std::ranges::upper_bound(kClasses, ratio) - kClasses.begin());
}

std::string percent(double share) { return figure(100 * share, "%.5g") + "%"; }

/// An SVG of a box of `width` x `height` units, stretched; read out as its caption.
Html stretched(const Caption& c, double width, double height, const Html& shapes) {
  const std::string title = c.id + "-title", desc = c.id + "-desc";
  return "svg"_tag("role", "img")("aria-labelledby", title + " " + desc)(
      "viewBox", "0 0 " + figure(width, "%.6g") + " " + figure(height, "%.6g"))("preserveAspectRatio", "none")(
      "title"_tag("id", title)(text(c.title)), "desc"_tag("id", desc)(text(c.says)), shapes);
}

Html x_labels(const Ticks& ticks, const std::string& name) {
  Html out;
  for (const auto& [at, label] : ticks) out += "span"_tag("style", "left:" + percent(at))(text(label));
  return "div"_tag("class", "x")("aria-hidden", "true")(out, "b"_tag(text(name)));
}

Html y_labels(const Ticks& ticks, const std::string& name) {
  Html out;
  for (const auto& [at, label] : ticks) out += "span"_tag("style", "top:" + percent(at))(text(label));
  return "div"_tag("class", "y")("aria-hidden", "true")("b"_tag(text(name)), out);
}

Html framed(const Caption& c, double height, const Html& y, const Html& area, const Html& x, const Html& below = {}) {
  return "figure"_tag("figcaption"_tag("strong"_tag(text(c.title)), " "_html, text(c.says)),
                      "div"_tag("class", "plot")("style", "--height:" + figure(height, "%.0f") + "px")(
                          y, "div"_tag("class", "area")(area), x),
                      below);
}

/// The rectangles of one class as one path: runs along a row are joined.
std::string runs(const Mat<double>& A, std::size_t of_class) {
  std::ostringstream d;
  for (Index r = 0; r < A.rows(); ++r)
    for (Index c = 0, n; c < A.cols(); c += n) {
      const auto at = [&](Index j) { return A(r, j) < 0 ? kClasses.size() + 1 : class_of(A(r, j)); };
      for (n = 1; c + n < A.cols() && at(c + n) == at(c);) ++n;
      if (at(c) == of_class) d << 'M' << c << ' ' << r << 'h' << n << "v1h-" << n << 'z';
    }
  return d.str();
}

/// The larger of two ratios; what is not finite is larger than everything, what was not judged smaller.
double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// At most `most` columns, each the worst of those that it stands for.
Mat<double> coarse(const Mat<double>& A, Index most) {
  if (A.cols() <= most) return A;
  Mat<double> B = Mat<double>::Constant(A.rows(), most, -1);
  for (Index c = 0; c < A.cols(); ++c)
    for (Index r = 0; r < A.rows(); ++r) {
      double& b = B(r, c * most / A.cols());
      b = worse(A(r, c), b);
    }
  return B;
}

}  // namespace

std::string heat_class(double ratio) { return "h" + std::to_string(class_of(ratio)); }

Ticks cell_ticks(Index n, std::size_t most, bool binary) {
  Index step = 1;
  for (int i = 0; n > static_cast<Index>(most) * step; ++i)
    step = binary ? 2 * step : i % 3 == 1 ? step / 2 * 5 : 2 * step;  // 1, 2, 5, 10, ...
  Ticks ticks;
  for (Index i = 0; i < n; i += step)
    ticks.emplace_back((static_cast<double>(i) + 0.5) / static_cast<double>(n), std::to_string(i));
  return ticks;
}

Html draw(const HeatMap& h) {
  const Mat<double> A = coarse(h.ratio, 160);
  const auto rows = static_cast<double>(A.rows()), columns = static_cast<double>(A.cols());
  Html shapes;
  for (std::size_t c = 0; c <= kClasses.size(); ++c)
    if (const std::string d = runs(A, c); !d.empty()) shapes += "path"_tag("class", "h" + std::to_string(c))("d", d)();
  if (const auto n = static_cast<double>(h.ratio.cols() * h.per_column);
      h.chunk > 0 && n / static_cast<double>(h.chunk) < 80) {
    std::string lines;
    for (Index t = h.chunk; static_cast<double>(t) < n; t += h.chunk)
      lines += "M" + figure(columns * static_cast<double>(t) / n, "%.6g") + " 0V" + figure(rows, "%.0f");
    if (!lines.empty()) shapes += "path"_tag("class", "chunks")("d", lines)();
  }
  const double height = std::clamp(rows * (rows > 16 ? 8 : 22), 44.0, 420.0);
  Html area = stretched(h.caption, columns, rows, shapes);
  if (h.mark)
    area += "i"_tag("class", "mark")("title", h.mark_says)(
        "style", "left:" + percent((static_cast<double>(h.mark->second) + 0.5) / static_cast<double>(h.ratio.cols())) +
                     ";top:" + percent((static_cast<double>(h.mark->first) + 0.5) / rows))(Html());
  return framed(
      h.caption, height,
      y_labels(cell_ticks(A.rows(), static_cast<std::size_t>(std::max(1.0, height / 20)), h.binary), h.row_name), area,
      x_labels(cell_ticks(h.ratio.cols() * h.per_column, 8, h.binary), h.column_name));
}

Html heat_legend() {
  Html out;
  double from = 0;
  for (std::size_t c = 0; c <= kClasses.size(); ++c) {
    const std::string label = c == kClasses.size()      ? "not finite"
                              : std::isinf(kClasses[c]) ? "≥ " + figure(from)
                              : c == 0                  ? "< " + figure(kClasses[c])
                                                        : figure(from) + "–" + figure(kClasses[c]);
    const Html what = c == 0 ? "passed"_html : c == 3 ? "marginal"_html : c == 4 ? "failed"_html : Html();
    out += "span"_tag("i"_tag("class", "swatch h" + std::to_string(c))(Html()), text(label), "small"_tag(what));
    if (c < kClasses.size()) from = kClasses[c];
  }
  return "p"_tag("class", "legend")("b"_tag("error / expected"_html), out);
}

// ---------------------------------------------------------------- curves

namespace {

/// The vertical axis: values to [0, 1], 0 at the top.
struct Vertical {
  double low, high;
  bool log;

  double operator()(double y) const {
    if (std::isnan(y) || y > high) return 0;
    const auto f = [&](double v) { return log ? std::log10(v) : v; };
    return 1 - std::clamp((f(std::max(y, low)) - f(low)) / (f(high) - f(low)), 0.0, 1.0);
  }

  static Vertical over(const Plot& p) {
    double low = INFINITY, high = p.thresholds ? 2 * kFailed : -INFINITY;
    for (const Series& s : p.series)
      for (const auto& [x, y] : s.points) {
        if (!std::isfinite(y) || (p.log && !(y > 0))) continue;
        low = std::min(low, y), high = std::max(high, y);
      }
    if (!(low <= high)) low = p.log ? 0.1 : 0, high = 1;
    if (p.thresholds) low = std::clamp(low, 0.05, 0.5);
    if (!p.log) {
      const double margin = high > low ? 0.08 * (high - low) : 0.5;
      return {low - margin, high + margin, false};
    }
    low = std::max(low, high * 1e-12);  // a dozen decades are enough
    return {low / 1.25, high * 1.25, true};
  }

  /// A number; powers of ten as such where their digits would be many.
  static std::string label(double y) {
    const double e = std::round(std::log10(y));
    if (!(y > 0) || (std::abs(e) < 4 && e > -3) || std::abs(y / std::pow(10, e) - 1) > 1e-9) return figure(y, "%.4g");
    static constexpr const char* digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    std::string s = e < 0 ? "10⁻" : "10";
    for (const char c : std::to_string(static_cast<int>(std::abs(e)))) s += digits[c - '0'];
    return s;
  }

  Ticks ticks() const {
    Ticks out;
    auto add = [&](double y) {
      if (y >= low && y <= high) out.emplace_back((*this)(y), label(y));
    };
    const double decades = log ? std::log10(high / low) : 0;
    if (log) {
      const int step = std::max(1, static_cast<int>(std::ceil(decades / 5)));
      for (int e = static_cast<int>(std::floor(std::log10(low))); e <= std::log10(high); e += step)
        for (const double m : {1., 2., 5.})
          if (m == 1 || decades < 1.6) add(m * std::pow(10, e));
    } else {
      const double raw = (high - low) / 4, unit = std::pow(10, std::floor(std::log10(raw)));
      const double step = unit * (raw / unit < 2 ? 2 : raw / unit < 5 ? 5 : 10);
      for (double y = std::ceil(low / step) * step; y <= high; y += step) add(std::abs(y) < step / 100 ? 0 : y);
    }
    return out;
  }
};

constexpr double kWide = 1000, kHigh = 100;  // the units of a plot

}  // namespace

Html draw(const Plot& p) {
  const Vertical vertical = Vertical::over(p);
  auto X = [](double x) { return figure(kWide * x, "%.5g"); };
  auto Y = [&](double y) { return figure(kHigh * vertical(y), "%.4g"); };

  Html shapes;
  if (p.thresholds) {
    auto band = [&](const char* name, double from, double to) {
      const double top = kHigh * vertical(to), bottom = kHigh * vertical(from);
      shapes += "rect"_tag("class", name)("x", 0.0)("y", top)("width", kWide)("height", bottom - top)();
    };
    band("failing", kFailed, INFINITY), band("doubtful", kMarginal, kFailed);
  }
  for (const auto& [y, label] : vertical.ticks())
    shapes += "path"_tag("class", "grid")("d", "M0 " + figure(kHigh * y, "%.4g") + "H" + X(1))();
  for (std::size_t i = 0; i < p.series.size(); ++i) {
    std::string d, dots, beyond;
    for (const auto& [x, y] : p.series[i].points) {
      if (d.empty())
        d += "M" + X(x) + " " + Y(y);
      else
        d += p.steps ? "V" + Y(y) + "H" + X(x) : "L" + X(x) + " " + Y(y);
      (std::isfinite(y) ? dots : beyond) += "M" + X(x) + " " + Y(y) + "h0";
    }
    const std::string name = "s" + std::to_string(i % 6);
    shapes += "path"_tag("class", "line " + name)("d", d)();
    if (p.dots && !dots.empty()) shapes += "path"_tag("class", "dot " + name)("d", dots)();
    if (!beyond.empty()) shapes += "path"_tag("class", "dot beyond")("d", beyond)();
  }

  Html legend;
  if (p.series.size() > 1)
    for (std::size_t i = 0; i < p.series.size(); ++i)
      legend += "span"_tag("svg"_tag("class", "key")("aria-hidden", "true")("viewBox", "0 0 28 10")(
                               "path"_tag("class", "line s" + std::to_string(i % 6))("d", "M0 5H28")()),
                           text(p.series[i].name));
  const Html area =
      stretched(p.caption, kWide, kHigh, shapes) +
      (p.thresholds ? "em"_tag("class", "threshold")("style", "top:" + percent(vertical(kFailed)))("failed from 2"_html)
                    : Html());
  return framed(p.caption, 150, y_labels(vertical.ticks(), p.y_name), area, x_labels(p.x_ticks, p.x_name),
                legend.empty() ? Html() : "p"_tag("class", "legend")(legend));
}

Series envelope(std::string name, const Mat<double>& ratio) {
  Series s{std::move(name), {}};
  const Mat<double> A = coarse(ratio, 400);
  const auto n = static_cast<double>(A.cols());
  for (Index c = 0; c < A.cols(); ++c) {
    double top = -1;
    for (Index r = 0; r < A.rows(); ++r) top = worse(A(r, c), top);
    if (top < 0) continue;
    s.points.emplace_back(static_cast<double>(c) / n, top);
    s.points.emplace_back(static_cast<double>(c + 1) / n, top);
  }
  return s;
}

Html ratio_bar(double ratio) {
  auto at = [](double r) {
    return !std::isfinite(r) ? 1.0 : std::clamp(std::log10(std::max(r, 0.1) / 0.1) / 4, 0.0, 1.0);
  };
  auto line = [&](const char* name, double r) {
    return "i"_tag("class", name)("style", "left:" + percent(at(r)))(Html());
  };
  return "span"_tag("class", "bar")("aria-hidden", "true")(
      "i"_tag("class", "fill " + heat_class(ratio))("style", "width:" + percent(std::max(at(ratio), 0.01)))(Html()),
      line("limit", kMarginal), line("limit", kFailed));
}

}  // namespace delta
