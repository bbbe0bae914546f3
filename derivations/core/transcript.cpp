// SPDX-License-Identifier: Apache-2.0
#include "transcript.hpp"

#include <algorithm>
#include <iostream>
#include <sstream>

namespace delta {
namespace {

constexpr std::size_t kWidth = 100;

/// As code in Markdown. An apostrophe ends what stands between single backticks, in Doxygen's eyes.
std::string as_code(const std::string& s) {
  const std::string quote = s.find('\'') != s.npos ? "``" : "`";
  return quote + s + quote;
}

std::string_view trimmed(std::string_view s) {
  const std::size_t a = s.find_first_not_of(' ');
  return a == s.npos ? std::string_view{} : s.substr(a, s.find_last_not_of(' ') - a + 1);
}

/// A matrix as lines of equal length, its name and shape above it.
std::vector<std::string> drawn(const Picture& p) {
  std::vector<std::string> lines{p.name};
  if (p.rows * p.cols == 1) {
    lines[0] += " = " + p.entries[0];
    return lines;
  }
  lines[0] +=
      "  [" + std::to_string(p.rows) + (p.cols == 1 ? "" : " x " + std::to_string(p.cols)) + "]";
  const bool flat = p.cols == 1;  // a vector lies on its side
  const long rows = flat ? 1 : p.rows, cols = flat ? p.rows : p.cols;
  for (long i = 0; i < rows; ++i) lines.emplace_back();
  for (long j = 0; j < cols; ++j) {
    std::size_t width = 0;
    for (long i = 0; i < rows; ++i) width = std::max(width, p.entries[i * cols + j].size());
    for (long i = 0; i < rows; ++i) {
      const std::string& e = p.entries[i * cols + j];
      lines[i + 1] += std::string(j ? 2 : 0, ' ') + std::string(width - e.size(), ' ') + e;
    }
  }
  return lines;
}

std::size_t longest(const std::vector<std::string>& lines) {
  std::size_t n = 0;
  for (const std::string& s : lines) n = std::max(n, s.size());
  return n;
}

}  // namespace

std::string_view Entry::title() const {
  const std::size_t a = source.find("// # ") + 5;
  return source.substr(a, source.find('\n', a) - a);
}

bool Record::join(const Claim& claim) {
  for (Claim& c : claims)
    if (c.line == claim.line && c.id == claim.id && c.statement == claim.statement) {
      if (c.holds && !claim.holds) c.detail = claim.detail;
      c.holds = c.holds && claim.holds;
      c.degree = std::max(c.degree, claim.degree);
      ++c.times;
      return false;
    }
  claims.push_back(claim);
  return true;
}

bool Record::all_hold() const {
  return !claims.empty() && std::ranges::all_of(claims, [](const Claim& c) { return c.holds; });
}

Transcript::Transcript(const Entry& entry, std::ostream& out, const Style& style)
    : name_(entry.name), out_(out), style_(style) {
  for (std::string_view rest = entry.source; !rest.empty();) {
    const std::size_t n = std::min(rest.find('\n'), rest.size());
    lines_.push_back(rest.substr(0, n));
    rest.remove_prefix(std::min(n + 1, rest.size()));
  }
  const auto starts = [](std::string_view what) {
    return [what](std::string_view line) { return line.starts_with(what); };
  };
  next_ =
      static_cast<unsigned>(std::ranges::find_if(lines_, starts("// # ")) - lines_.begin()) + 1;
  last_ = static_cast<unsigned>(std::ranges::find_if(lines_, starts("template void")) -
                                lines_.begin());
  while (last_ > next_ &&
         (trimmed(lines_[last_ - 1]).empty() || lines_[last_ - 1].starts_with("}")))
    --last_;
}

std::string Transcript::paint(std::string_view code, const std::string& s) const {
  return style_.colour ? "\033[" + std::string(code) + "m" + s + "\033[0m" : s;
}

void Transcript::fence(bool open) {
  if (style_.markdown && open != fenced_) out_ << (open ? "```cpp\n" : "```\n");
  fenced_ = open;
}

/// Prose is wrapped anew; formulas that are set off, tables and headings stand as they are.
void Transcript::print_paragraph() {
  const auto joins = [](std::string_view word) {  // a sign belongs to what stands beside it
    return word.size() <= 2 && word.find_first_of("=+-<>.*/") != word.npos && word != "-";
  };
  std::string line;
  std::size_t breakable = 0;  // where the line may end
  std::string last;
  std::istringstream words(paragraph_);
  for (std::string word; words >> word; last = word) {
    if (!line.empty() && !joins(word) && !joins(last)) breakable = line.size();
    line += (line.empty() ? "" : " ") + word;
    if (line.size() > kWidth && breakable > 0) {
      out_ << line.substr(0, breakable) << '\n';
      line.erase(0, breakable + 1);
      breakable = 0;
    }
  }
  if (!line.empty()) out_ << line << '\n';
  paragraph_.clear();
}

/// What draws, shows or checks is not printed unless asked for: its result is.
void Transcript::print_line(unsigned line) {
  const std::string_view text = lines_[line - 1], bare = trimmed(text);
  const bool prose_line =
      bare.starts_with("// ") && !bare.starts_with("//     ") && !bare.starts_with("// #");
  if (!prose_line && !paragraph_.empty()) print_paragraph();
  if (bare.empty()) {
    if (above_ != ' ') out_ << '\n';
    above_ = ' ';
    return;
  }
  if (bare.starts_with("//")) {
    const std::string prose(bare.size() > 3 ? bare.substr(3) : "");
    fence(false);
    if (above_ == 'c' || above_ == 'r' || above_ == 'm') out_ << '\n';
    if (prose_line)
      paragraph_ += prose + ' ';
    else if (prose.starts_with("# ") && style_.markdown)
      out_ << prose << " {#derivation_" << name_ << "}\n";
    else if (prose.starts_with("#") && !style_.markdown) {
      const std::string title = prose.substr(prose.find(' ') + 1);
      const bool whole = prose.starts_with("# ");
      out_ << (whole ? "" : "\n") << paint("1", title) << '\n'
           << paint("1", std::string(title.size(), whole ? '=' : '-')) << '\n';
    } else
      out_ << prose << '\n';
    above_ = prose.empty() ? ' ' : 'p';
    return;
  }
  const bool head = (bare.starts_with("template <") || bare.starts_with("void ")) &&
                    bare.find("& d) {") != bare.npos;
  const bool sizes = bare.find("d.size(") != bare.npos, shows = bare.find("d.show(") != bare.npos;
  // Whether a scalar has an order is no step of the argument; a block of such steps keeps its brace.
  const bool only_ordered = bare == "if constexpr (ordered<T>)";
  body_ = body_ || head;
  if (head || (!style_.code && (sizes || shows || only_ordered))) return;
  if (above_ == 'p' || above_ == 'm') out_ << '\n';
  fence(true);
  out_ << (style_.markdown ? "" : "    ")
       << paint("2", std::string(text.substr(
                         body_ ? std::min<std::size_t>(2, text.size() - bare.size()) : 0)))
       << '\n';
  above_ = 'c';
}

/// The last line of the statement that begins here: its brackets are closed and a semicolon ends it.
unsigned Transcript::end_of_statement(unsigned line) const {
  int depth = 0;
  bool quoted = false;
  for (; line < lines_.size(); ++line) {
    const std::string_view text = lines_[line - 1];
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
      if (!quoted)
        depth += (text[i] == '(' || text[i] == '{') - (text[i] == ')' || text[i] == '}');
    }
    if (depth <= 0 && trimmed(text).ends_with(";")) break;
  }
  return line;
}

void Transcript::print_until(unsigned line) {
  for (; next_ <= std::min(line, last_); ++next_) print_line(next_);
  print_paragraph();
}

void Transcript::shown(unsigned line, const std::vector<Picture>& pictures) {
  if (!drawn_.insert(line).second) return;
  if (line >= next_) {
    print_until(style_.code ? end_of_statement(line) : line - 1);
    next_ = end_of_statement(line) + 1;
  }
  fence(false);
  if (above_ != ' ') out_ << '\n';
  if (style_.markdown) out_ << "```text\n";
  std::vector<std::string> row;  // the lines of the pictures that stand beside each other
  const std::string indent(style_.markdown ? 0 : 8, ' ');
  const auto flush = [&] {
    for (const std::string& s : row) out_ << indent << s << '\n';
    row.clear();
  };
  for (const Picture& p : pictures) {
    const std::vector<std::string> d = drawn(p);
    if (longest(row) + 4 + longest(d) + indent.size() > kWidth) flush();
    const std::size_t left = row.empty() ? 0 : longest(row) + 4;
    row.resize(std::max(row.size(), d.size()));
    for (std::size_t i = 0; i < d.size(); ++i) row[i].resize(left, ' '), row[i] += d[i];
  }
  flush();
  if (style_.markdown) out_ << "```\n";
  above_ = 'm';
}

void Transcript::claimed(const Claim& claim) {
  const bool first = join(claim);
  if (!first && claim.holds) return;
  if (first) {
    const unsigned end = end_of_statement(claim.line);
    print_until(style_.code ? end : claim.line - 1);
    next_ = std::max(next_, end + 1);
  }
  fence(false);
  if (above_ == 'm') out_ << '\n';
  const std::string verdict = claim.holds ? "holds" : "FAILS", kind(name(claim.kind));
  const bool detailed = !claim.detail.empty() && claim.kind != Kind::Q;
  if (style_.markdown) {
    out_ << "\n**" << verdict << "** " << claim.id << ' ' << kind << ' '
         << as_code(claim.statement) << (detailed ? "; " + as_code(claim.detail) : "") << "\n";
  } else {
    const std::size_t width = kWidth - 7;
    std::string line = claim.id + "  " + kind + "  " + claim.statement;
    out_ << paint(claim.holds ? "32" : "1;31", verdict) << "  ";
    for (std::string indent; !line.empty(); indent = std::string(7, ' ')) {  // wrapped at blanks
      std::size_t n = line.size() <= width ? line.size() : line.rfind(' ', width);
      if (n == line.npos) n = line.size();
      out_ << indent << line.substr(0, n) << '\n';
      line.erase(0, std::min(n + 1, line.size()));
    }
    if (detailed) out_ << std::string(7, ' ') << claim.detail << '\n';
  }
  above_ = 'r';
  while (next_ <= last_ &&
         trimmed(lines_[next_ - 1]).starts_with("// Why")) {  // the reason stands below its claim
    do print_line(next_++);
    while (next_ <= last_ && trimmed(lines_[next_ - 1]).starts_with("//"));
    print_paragraph();
  }
  if (style_.step) {
    out_ << paint("2", "[Enter]") << std::flush;
    std::string ignored;
    std::getline(std::cin, ignored);
  }
}

void Transcript::finish() {
  print_until(last_);
  fence(false);
}

}  // namespace delta
