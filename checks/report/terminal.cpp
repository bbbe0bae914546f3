// SPDX-License-Identifier: Apache-2.0
#include "checks/report/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace delta {
namespace {

constexpr std::size_t kNarrowest = 40, kWidest = 1000;

std::size_t width_of_output() {
  std::size_t width = 120;
  if (winsize w{}; isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0) width = w.ws_col;
  if (const char* s = std::getenv("COLUMNS"))
    if (const long n = std::strtol(s, nullptr, 10); n > 0) width = static_cast<std::size_t>(n);
  return std::clamp(width, kNarrowest, kWidest);
}

std::string padded(const std::string& s, std::size_t width, bool right) {
  const std::string space(width - std::min(width, columns(s)), ' ');
  return right ? space + s : s + space;
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

/// The bytes that the first n characters take.
std::size_t bytes_of(std::string_view s, std::size_t n) {
  std::size_t i = 0;
  for (; i < s.size(); ++i)
    if ((s[i] & 0xc0) != 0x80 && n-- == 0) break;
  return i;
}

/// The lines of a text, each at most `width` columns (and the first so many fewer).
std::vector<std::string> lines_of(std::string_view text, std::size_t width, std::size_t fewer_in_first = 0) {
  std::vector<std::string> lines{""};
  auto room = [&] { return width - (lines.size() == 1 ? std::min(fewer_in_first, width) : 0); };
  while (!text.empty()) {
    const std::size_t blanks = std::min(text.find_first_not_of(' '), text.size());
    std::size_t end = text.find_first_of(" \n", blanks);
    if (end == blanks) {  // a line ends here
      lines.emplace_back();
      text.remove_prefix(end + 1);
      continue;
    }
    end = std::min(end, text.size());
    std::string_view word = text.substr(blanks, end - blanks);
    const std::string gap(lines.back().empty() && lines.size() > 1 ? 0 : blanks, ' ');
    text.remove_prefix(end);
    if (columns(lines.back()) + gap.size() + columns(word) <= room()) {
      lines.back().append(gap).append(word);
      continue;
    }
    if (!lines.back().empty() || room() < width) lines.emplace_back();
    for (; columns(word) > room(); lines.emplace_back()) {
      const std::size_t cut = bytes_of(word, std::max<std::size_t>(room(), 1));
      lines.back().append(word.substr(0, cut));
      word.remove_prefix(cut);
    }
    lines.back().append(word);
  }
  return lines;
}

}  // namespace

std::size_t columns(std::string_view utf8) {
  return static_cast<std::size_t>(std::ranges::count_if(utf8, [](char c) { return (c & 0xc0) != 0x80; }));
}

Terminal Terminal::standard_output() {
  auto given = [](const char* name) {
    const char* s = std::getenv(name);
    return std::string_view(s ? s : "");
  };
  return {.width = width_of_output(),
          .colour = isatty(STDOUT_FILENO) && given("NO_COLOR").empty() && given("TERM") != "dumb"};
}

std::string Terminal::verdict(std::string_view name) const {
  std::string s(name);
  for (char& c : s) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (!colour) return s;
  const char* code = name == "passed"                          ? "32"  // green
                     : name == "marginal" || name == "skipped" ? "33"  // yellow
                     : name == "untrusted"                     ? "35"  // magenta
                                                               : "31";                     // red
  return std::string("\033[1;") + code + "m" + s + "\033[0m";
}

std::string Terminal::wrapped(std::string_view text, std::size_t indent) const {
  indent = std::min(indent, width / 2);
  std::string out;
  for (const std::string& line : lines_of(text, width - indent))
    out += (out.empty() ? "" : "\n" + std::string(indent, ' ')) + line;
  return out;
}

std::string Terminal::item(std::string_view begin, std::string_view text) const {
  const std::size_t column = columns(begin);
  std::string out(begin), indent;
  for (const std::string& line : lines_of(text, width - std::min(column, width / 2))) {
    out += indent + line + '\n';
    indent.assign(column, ' ');
  }
  return out;
}

std::string Terminal::field(std::string_view label, std::string_view text) const {
  return item(padded("  " + std::string(label), 15, false), text);
}

std::string TextTable::text(std::size_t width) const {
  constexpr std::size_t gap = 2, narrowest_text = 16;
  const std::size_t n = columns.size();
  std::vector<std::size_t> w(n);
  for (std::size_t c = 0; c < n; ++c) {
    w[c] = delta::columns(columns[c].head);
    for (const auto& row : rows) w[c] = std::max(w[c], delta::columns(row[c]));
  }
  auto span = [&](std::size_t from, std::size_t to) {  // of columns [from, to), a gap before each
    std::size_t sum = 0;
    for (std::size_t c = from; c < to; ++c) sum += gap + w[c];
    return sum;
  };
  auto total = [&] { return indent + span(0, n) - gap; };
  if (flexible < n && total() > width) {
    const std::size_t rest = total() - w[flexible];
    w[flexible] = std::min(w[flexible], std::max(narrowest_text, width - std::min(width, rest)));
  }
  const bool group = keys == 2 && total() > width;  // the first key on a line of its own
  const std::size_t key = group ? 1 : 0, left = indent + (group ? 2 : 0);

  if (total() > width) {  // in blocks then; whatever does not fit beside its key breaks its text
    for (std::size_t c = key; c < keys; ++c) w[c] = std::min(w[c], (width - left) / (keys - key + 1) - gap);
    for (std::size_t c = keys; c < n; ++c) w[c] = std::min(w[c], width - left - span(key, keys));
  }

  std::string out;
  auto print_row = [&](const std::vector<std::string>& cells, std::size_t from, std::size_t to, bool repeat_key) {
    std::vector<std::vector<std::string>> lines(n);
    std::size_t height = 1;
    auto shown = [&](std::size_t c) { return (c >= key && c < keys) || (c >= from && c < to); };
    for (std::size_t c = 0; c < n; ++c) {
      if (!shown(c)) continue;
      lines[c] = lines_of(c == 0 && keys == 2 && !repeat_key ? "" : cells[c], std::max<std::size_t>(w[c], 1));
      height = std::max(height, lines[c].size());
    }
    for (std::size_t i = 0; i < height; ++i) {
      std::string line(left, ' ');
      for (std::size_t c = 0; c < n; ++c)
        if (shown(c))
          line += (line.size() > left ? std::string(gap, ' ') : "") +
                  padded(i < lines[c].size() ? lines[c][i] : "", w[c], columns[c].right);
      out += trimmed(line) + '\n';
    }
  };

  std::vector<std::string> heads;
  for (const Column& c : columns) heads.push_back(c.head);
  for (std::size_t from = keys; from < n || from == keys;) {
    std::size_t to = std::min(from + 1, n);
    while (to < n && left + span(key, keys) + span(from, to + 1) - gap <= width) ++to;
    if (from > keys) out += '\n';
    print_row(heads, from, to, true);
    std::string last;
    for (const auto& row : rows) {
      const bool first_of_group = &row == rows.data() || row[0] != last;
      if (group && first_of_group) out += std::string(indent, ' ') + row[0].substr(0, width - indent) + '\n';
      print_row(row, from, to, first_of_group);
      last = row[0];
    }
    from = std::max(to, from + 1);
  }
  return out;
}

}  // namespace delta
