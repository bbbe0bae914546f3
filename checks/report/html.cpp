// SPDX-License-Identifier: Apache-2.0
#include "checks/report/html.hpp"

#include <cctype>
#include <cmath>
#include <cstdio>
#include <map>

#include "checks/core/printable.hpp"
#include "checks/report/style.hpp"

namespace delta {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

/// The bytes of the UTF-8 character at the front; 0 if it is none that XML can hold and a page should show.
std::size_t character(std::string_view s) {
  const auto [n, c] = first_character(s);
  const bool control = c < 0x20 ? c != '\t' && c != '\n' : c >= 0x7f && c < 0xa0;
  return control || c == 0xfffe || c == 0xffff ? 0 : n;
}

std::string escaped(std::string_view s) {
  std::string out;
  while (!s.empty()) {
    const std::size_t n = character(s);
    if (n == 0)
      out += kReplacement;
    else if (s[0] == '&')
      out += "&amp;";
    else if (s[0] == '<')
      out += "&lt;";
    else if (s[0] == '>')
      out += "&gt;";
    else if (s[0] == '"')
      out += "&quot;";
    else if (s[0] == '\'')
      out += "&#39;";
    else
      out += s.substr(0, n);
    s.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return out;
}

}  // namespace

Html text(std::string_view outside) { return Html(escaped(outside)); }

Html isolated(std::string_view outside) { return "bdi"_tag(text(outside)); }

Tag Tag::operator()(std::string_view attribute, std::string_view value) const& {
  Tag t = *this;
  t.open_ += ' ' + std::string(attribute) + "=\"" + escaped(value) + '"';
  return t;
}

Tag Tag::operator()(std::string_view attribute, double value) const& {
  return (*this)(attribute, figure(value, "%.4g"));
}

std::string figure(double x, const char* format) {
  if (std::isnan(x)) return "not a number";
  if (std::isinf(x)) return x > 0 ? "infinite" : "-infinite";
  char s[40];
  std::snprintf(s, sizeof s, format, x);
  return s;
}

// ---------------------------------------------------------------- formulas

namespace {

/// Reads a formula and sets it. Two notations, told apart by the backslash: the LaTeX of the rules, and plain lines in
/// which words are words ("M for H in the output"), Greek letters are spelled and ^T transposes.
class Formula {
 public:
  explicit Formula(std::string_view s) : s_(s), latex_(s.find('\\') != s.npos) {}

  /// Up to a closing character, which is taken, or to the end.
  Html row(char until = 0) {
    Html out;
    while (skip_blanks(), i_ < s_.size() && s_[i_] != until) out += scripted(atom());
    i_ += until && i_ < s_.size();
    return out;
  }

 private:
  static Html variable(std::string_view s) { return "i"_tag(text(s)); }
  static Html upright(std::string_view s) { return "span"_tag(text(s)); }
  static Html relation(std::string_view s) { return "span"_tag("class", "o")(text(s)); }
  static Html space(const char* width) { return "span"_tag("style", std::string("margin-left:") + width)(Html()); }

  void skip_blanks() {
    while (i_ < s_.size() && s_[i_] == ' ') ++i_;
  }
  char peek() const { return i_ < s_.size() ? s_[i_] : '\0'; }
  static bool letter(char c) { return std::isalpha(static_cast<unsigned char>(c)); }
  static bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }

  std::string name() {
    std::string s;
    while (letter(peek()) || (!latex_ && digit(peek()))) s += s_[i_++];
    return s;
  }

  using Symbols = std::map<std::string, std::string_view>;
  static std::string_view symbol(const Symbols& symbols, const std::string& name) {
    const auto found = symbols.find(name);
    return found == symbols.end() ? std::string_view() : found->second;
  }
  static std::string_view greek(const std::string& name) {
    static const Symbols letters{{"alpha", "α"}, {"beta", "β"},   {"gamma", "γ"}, {"delta", "δ"}, {"kappa", "κ"},
                                 {"rho", "ρ"},   {"eta", "η"},    {"theta", "θ"}, {"sigma", "σ"}, {"tau", "τ"},
                                 {"phi", "φ"},   {"lambda", "λ"}, {"mu", "μ"},    {"Gamma", "Γ"}};
    return symbol(letters, name);
  }
  static std::string_view sign(const std::string& name) {
    static const Symbols signs{{"odot", "⊙"},  {"cdot", "·"}, {"prod", "∏"}, {"sum", "∑"},   {"le", "≤"},
                               {"times", "×"}, {"ge", "≥"},   {"ne", "≠"},   {"to", "→"},    {"ldots", "…"},
                               {"Vert", "‖"},  {"circ", "∘"}, {"in", "∈"},   {"lVert", "‖"}, {"rVert", "‖"}};
    return symbol(signs, name);
  }

  /// What one script or accent takes: a group or one atom.
  Html argument() {
    skip_blanks();
    if (!latex_ && peek() == 'T' && (i_ + 1 == s_.size() || !letter(s_[i_ + 1]))) return ++i_, upright("⊤");
    return atom();
  }

  Html command() {
    if (!letter(peek())) return ++i_, space("0.2em");  // backslash and comma, and the like
    const std::string n = name();
    if (n == "quad" || n == "qquad") return space(n == "quad" ? "1em" : "2em");
    if (n == "top") return upright("⊤");
    if (n == "hat" || n == "tilde" || n == "bar") return "span"_tag("class", "over-" + n)(argument());
    if (n == "mathrm" || n == "text" || n == "operatorname") {
      skip_blanks();
      std::string word;
      for (i_ += peek() == '{'; i_ < s_.size() && peek() != '}';) word += s_[i_++];
      ++i_;
      return upright(word);
    }
    if (n == "left" || n == "right") return atom();
    if (const std::string_view g = greek(n); !g.empty()) return variable(g);
    const std::string_view s = sign(n);
    return s.empty() ? upright(n) : relation(s);
  }

  /// Words, with the blanks around and between them.
  Html words() {
    std::string s = i_ > 0 ? " " : "";
    for (;;) {
      const std::size_t begin = i_;
      const std::string n = name();
      if (n.size() < 2 || !greek(n).empty()) {
        i_ = begin;
        break;
      }
      s += n;
      if (peek() == ',') s += s_[i_++];
      if (peek() != ' ') break;
      s += ' ';
      skip_blanks();
    }
    return "span"_tag("class", "words")(text(s));
  }

  Html atom() {
    skip_blanks();
    const char c = peek();
    if (c == '\0') return Html();
    if (c == '{') return ++i_, row('}');
    if (c == '\\') return ++i_, command();
    if (digit(c)) {
      std::string n;
      while (digit(peek()) || (peek() == '.' && !n.empty())) n += s_[i_++];
      return upright(n);
    }
    if (letter(c)) {
      if (latex_) return ++i_, variable(std::string(1, c));
      const std::size_t begin = i_;
      const std::string n = name();
      if (n.size() == 1) return variable(n);
      if (const std::string_view g = greek(n); !g.empty()) return variable(g);
      i_ = begin;
      return words();
    }
    std::size_t n = 1;
    while (i_ + n < s_.size() && (s_[i_ + n] & 0xc0) == 0x80) ++n;
    const std::string_view op = s_.substr(i_, n);
    i_ += n;
    if (op == "-") return relation("−");
    return op == "=" || op == "+" || op == "<" || op == ">" || op == "," ? relation(op) : upright(op);
  }

  /// An atom with what stands at its corners: _ below, ^ above, ' and ~.
  Html scripted(Html base) {
    Html below, above;
    for (;;) {
      const char c = peek();
      if (c == '_')
        ++i_, below += argument();
      else if (c == '^')
        ++i_, above += argument();
      else if (c == '\'')
        ++i_, above += upright("′");
      else if (c == '~' && !latex_)
        ++i_, base = "span"_tag("class", "over-tilde")(base);
      else
        break;
    }
    if (below.empty() && above.empty()) return base;
    if (below.empty()) return base + "sup"_tag(above);
    if (above.empty()) return base + "sub"_tag(below);
    return base + "span"_tag("class", "scripts")("span"_tag(above), "span"_tag(below));
  }

  std::string_view s_;
  std::size_t i_ = 0;
  bool latex_;
};

}  // namespace

Html math(std::string_view formula) {
  return "span"_tag("class", "formula")("role", "math")("aria-label", formula)(Formula(formula).row());
}

// ---------------------------------------------------------------- tables and the page

Html table(std::string_view caption, const std::vector<Head>& heads, const std::vector<Html>& rows) {
  Html head, body;
  for (const Head& h : heads) {
    const Tag th = "th"_tag("scope", "col");
    head += (h.look.empty() ? th : th("class", h.look))(text(h.name));
  }
  for (const Html& r : rows) body += "tr"_tag(r);
  return "div"_tag("class",
                   "scroll")("table"_tag("caption"_tag(text(caption)), "thead"_tag("tr"_tag(head)), "tbody"_tag(body)));
}

std::string page(std::string_view title, const Html& body) {
  return "<!DOCTYPE html>\n" +
         "html"_tag("lang", "en")("xmlns", "http://www.w3.org/1999/xhtml")(
             "head"_tag("meta"_tag("charset", "utf-8")(),
                        "meta"_tag("name", "viewport")("content", "width=device-width, initial-scale=1")(),
                        "meta"_tag("name", "color-scheme")("content", "light dark")(), "title"_tag(text(title)),
                        "style"_tag(kStyle)),
             "body"_tag("main"_tag(body)))
             .str() +
         '\n';
}

}  // namespace delta
