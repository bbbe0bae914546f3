// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace delta {

/// A piece of markup. It comes from a literal of this program or from `text`, which escapes: what was not escaped does
/// not compile.
class Html {
 public:
  Html() = default;
  Html& operator+=(const Html& x) { return s_ += x.s_, *this; }
  friend Html operator+(Html a, const Html& b) { return a += b; }
  bool empty() const { return s_.empty(); }
  const std::string& str() const { return s_; }

 private:
  explicit Html(std::string s) : s_(std::move(s)) {}
  friend Html text(std::string_view);
  friend class Tag;
  friend Html operator""_html(const char*, std::size_t);
  std::string s_;
};

/// Text from anywhere (a file name, a note, metadata): markup is escaped, control characters and what is no UTF-8
/// become U+FFFD, so that the page stays well-formed HTML and XML.
Html text(std::string_view outside);

/// The same for text that may be written from right to left, or pretend to be: it cannot reorder what is around it.
Html isolated(std::string_view outside);

inline Html operator""_html(const char* s, std::size_t n) { return Html(std::string(s, n)); }

/// An element: "td"_tag("class", "number")(text(x)). Attributes are quoted and () closes a void element, so that the
/// page is XML as well; an empty element of HTML that is not void takes Html().
class Tag {
 public:
  explicit Tag(std::string name) : name_(std::move(name)), open_('<' + name_) {}
  /// With an attribute more; its value is escaped.
  Tag operator()(std::string_view attribute, std::string_view value) const&;
  Tag operator()(std::string_view attribute, double value) const&;
  template <class... Content>
  requires(std::is_same_v<Content, Html>&&...) Html operator()(const Content&... content) const {
    std::string s = open_;
    if constexpr (sizeof...(content) == 0) return Html(s + "/>");
    s += '>';
    ((s += content.str()), ...);
    return Html(s + "</" + name_ + '>');
  }

 private:
  std::string name_, open_;
};
inline Tag operator""_tag(const char* s, std::size_t n) { return Tag(std::string(s, n)); }

/// A number as it is shown: `format` as printf takes it.
std::string figure(double x, const char* format = "%.3g");

/// A formula in the LaTeX of the rules, or plain ("e = v - S'x"), set with letters and scripts: what browsers make of
/// MathML depends on the fonts that they find.
Html math(std::string_view formula);

/// The head of a column, and the class of its cells: "n" are numbers, to the right; "bar-cell" goes on a phone.
struct Head {
  std::string name, look = {};
};

/// A table: a caption for those who do not see it, column heads, rows of ready `td` or `th` elements.
Html table(std::string_view caption, const std::vector<Head>& heads, const std::vector<Html>& rows);

/// The whole page: one file, no script, nothing from the network; light and dark; readable on a phone and on paper.
std::string page(std::string_view title, const Html& body);

}  // namespace delta
