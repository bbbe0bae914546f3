// SPDX-License-Identifier: Apache-2.0
#include "checks/core/printable.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace delta {
namespace {

/// Code points that show nothing themselves: controls, line separators, joiners, marks and overrides of direction,
/// tags.
constexpr std::pair<char32_t, char32_t> kUnseen[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},   {0x180e, 0x180e},  {0x200b, 0x200f},
    {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};

bool unseen(char32_t c) {
  return std::ranges::any_of(kUnseen, [c](const auto& range) { return range.first <= c && c <= range.second; });
}

}  // namespace

std::pair<std::size_t, char32_t> first_character(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char b = byte(0);
  if (b < 0x80) return {1, b};
  const std::size_t n = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : 2;
  if (b < 0xc2 || b > 0xf4 || s.size() < n) return {0, 0};
  char32_t c = b & (0x7f >> n);
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    c = c << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<char32_t, 5> shortest{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = c >= 0xd800 && c < 0xe000;
  return {c < shortest[n] || c > 0x10ffff || surrogate ? 0 : n, c};
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto [n, c] = first_character(text);
    char escape[16];
    if (n == 0 || (n == 1 && unseen(c)))
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(text[0])), out += escape;
    else if (unseen(c))
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c)), out += escape;
    else
      out += text.substr(0, n);
    text.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return out;
}

}  // namespace delta
