// SPDX-License-Identifier: Apache-2.0
#include "checks/core/size.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <utility>

namespace delta {
namespace {

constexpr SweepRow kSweep[] = {
    {"B1_T0_H1_HV1_K4_V3_C8", "no token: the state must come back as it went in"},
    {"B2_T1_H2_HV2_K4_V4_C8", "one token: decay before or after the read cannot hide behind a second"},
    {"B1_T2_H2_HV6_K3_V5_C8", "two tokens, three value heads a key head"},
    {"B1_T5_H4_HV8_K5_V3_N2_C8", "less than a chunk, two value heads a key head"},
    {"B1_T7_H1_HV1_K4_V6_C8", "one token short of a chunk"},
    {"B2_T8_H2_HV2_K6_V4_N2_C8", "exactly one chunk"},
    {"B1_T9_H2_HV6_K4_V2_C8", "a tail of one token"},
    {"B1_T13_H1_HV2_K8_V4_N2_C8", "a tail of five tokens"},
    {"B1_T18_H4_HV8_K3_V4_C8", "two chunks and two tokens"},
    {"B1_T24_H1_HV2_K5_V3_N2_packed0.5.5.16.21_C8", "packed: an empty segment, uneven ones, slack rows of NaN"},
    {"B1_T33_H2_HV2_K4_V4_packed0.1.18.33_C4", "packed: segments that start inside a chunk of the buffer"},
    {"B1_T12_H1_HV1_K3_V3_N2_C1", "chunks of one token: the chunk form is then the recurrence"},
    {"B1_T63_H1_HV1_K4_V2_C64", "one token short of a chunk of 64"},
    {"B1_T65_H1_HV1_K2_V4_C64", "a chunk of 64 and a tail of one"},
    {"B1_T130_H1_HV2_K16_V16_C64", "two chunks of 64 and two tokens", true},
    {"B1_T70_H2_HV6_K16_V8_N2_C32", "grouped heads over two chunks of 32", true},
};

std::invalid_argument bad(std::string_view text, const std::string& why) {
  return std::invalid_argument("shape '" + std::string(text) + "': " + why + "; expected for example " +
                               std::string(kBaseSize));
}

/// A whole number in [0, 2^20], all of `digits`.
Index number(std::string_view text, std::string_view digits) {
  Index n = -1;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), n);
  if (error != std::errc{} || end != digits.end() || n < 0 || n > (1 << 20))
    throw bad(text, "'" + std::string(digits) + "' is no number between 0 and 1048576");
  return n;
}

/// Calls f on each part of `text` between separators.
template <class F> void split(std::string_view text, char separator, F f) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    f(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace

std::span<const SweepRow> sweep() { return kSweep; }

Size Size::parse(std::string_view text) {
  Size z{Shape{}};
  Shape& s = z.shape;
  bool chosen[8] = {};
  split(text, '_', [&](std::string_view field) {
    const std::size_t letters = std::min(field.find_first_of("0123456789"), field.size());
    const std::string_view name = field.substr(0, letters), value = field.substr(letters);
    if (name == "packed") {
      if (!s.offsets.empty()) throw bad(text, "'packed' is given twice");
      split(value, '.', [&](std::string_view offset) { s.offsets.push_back(number(text, offset)); });
      return;
    }
    constexpr std::string_view names[] = {"B", "T", "H", "HV", "K", "V", "N", "C"};
    Index* const members[] = {&s.B, &s.T, &s.H, &s.HV, &s.d_k, &s.d_v, &s.n_h, &z.C};
    const auto which = std::ranges::find(names, name) - std::begin(names);
    if (which == std::ssize(names)) throw bad(text, "unknown field '" + std::string(field) + "'");
    if (std::exchange(chosen[which], true)) throw bad(text, "'" + std::string(name) + "' is given twice");
    *members[which] = number(text, value);
    if (*members[which] == 0 && name != "T") throw bad(text, std::string(name) + " must be at least 1");
  });
  if (s.HV % s.H != 0) throw bad(text, "HV must be a multiple of H");
  if (!s.offsets.empty() &&
      (s.B != 1 || s.offsets.size() < 2 || !std::ranges::is_sorted(s.offsets) || s.offsets.back() > s.T))
    throw bad(text, "packed needs B1 and at least two offsets that never decrease and end within T");
  const double elements = double(s.B) * double(s.T + 1) * double(s.HV) * double(s.d_k + s.d_v) * double(s.n_h) +
                          double(s.sequences()) * double(s.HV) * double(s.d_k) * double(s.d_v);
  if (elements > 1e8) throw bad(text, "more than 1e8 numbers");
  return z;
}

}  // namespace delta
