// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace delta {

/// The UTF-8 character at the front of a text: how many bytes it takes, 0 if there is none, and its code point.
/// \pre !utf8.empty()
std::pair<std::size_t, char32_t> first_character(std::string_view utf8);

/// Text from outside as a terminal may show it, in one line. What could drive the terminal, turn the direction of the
/// text or stand there unseen becomes an escape: \\x1b a byte, \\u202e a code point.
std::string printable(std::string_view text);

}  // namespace delta
