// SPDX-License-Identifier: Apache-2.0
// The pieces of reports: lines and tables that fit, markup that cannot be broken out of, pictures that show what is
// there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sstream>

#include "checks/core/usage_error.hpp"
#include "checks/report/environment.hpp"
#include "checks/report/html.hpp"
#include "checks/report/svg.hpp"
#include "checks/report/terminal.hpp"

namespace delta {
namespace {

using testing::HasSubstr;
using testing::Not;

std::size_t widest(const std::string& s) {
  std::istringstream in(s);
  std::size_t most = 0;
  for (std::string line; std::getline(in, line);) most = std::max(most, columns(line));
  return most;
}

std::string without_blanks(std::string s) {
  std::erase_if(s, [](char c) { return c == ' ' || c == '\n'; });
  return s;
}

// ---------------------------------------------------------------- terminal

TEST(Wrapping, BreaksBetweenWordsAndCutsWhatIsLonger) {
  EXPECT_EQ((Terminal{.width = 10}.wrapped("one two three")), "one two\nthree");
  EXPECT_EQ((Terminal{.width = 10}.wrapped("one two three", 2)), "one two\n  three");
  EXPECT_EQ((Terminal{.width = 4}.wrapped("abcdefghij")), "abcd\nefgh\nij");
  EXPECT_EQ((Terminal{.width = 5}.wrapped("ββββ ββ")), "ββββ\nββ") << "columns, not bytes";
}

RC_GTEST_PROP(Wrapping, FitsAndLosesNothing, ()) {
  const auto text = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("abc  \xce\xb2 xyz")));
  const auto width = *rc::gen::inRange<std::size_t>(1, 50);
  std::string valid;  // a lone byte of a character is none
  for (const char c : text) valid += static_cast<unsigned char>(c) < 0x80 ? std::string(1, c) : "β";
  const std::string out = Terminal{.width = width}.wrapped(valid);
  RC_ASSERT(widest(out) <= width);
  RC_ASSERT(without_blanks(out) == without_blanks(valid));
}

RC_GTEST_PROP(TextTable, FitsAndShowsEveryCell, ()) {
  TextTable t;
  const auto n = *rc::gen::inRange<std::size_t>(1, 9);
  const auto word = [](std::size_t most) {
    return *rc::gen::resize(static_cast<int>(most), rc::gen::container<std::string>(rc::gen::inRange('a', 'z')));
  };
  t.keys = *rc::gen::inRange<std::size_t>(0, 3);
  t.keys = std::min(t.keys + 1, std::min<std::size_t>(n, 2));
  if (*rc::gen::arbitrary<bool>()) t.flexible = n - 1;
  for (std::size_t c = 0; c < n; ++c) t.columns.push_back({word(8), *rc::gen::arbitrary<bool>()});
  const auto rows = *rc::gen::inRange<std::size_t>(0, 6);
  for (std::size_t r = 0; r < rows; ++r) {
    t.rows.emplace_back();
    for (std::size_t c = 0; c < n; ++c) t.rows.back().push_back(word(14));
  }
  const auto width = *rc::gen::inRange<std::size_t>(40, 130);
  const std::string out = t.text(width);
  RC_ASSERT(widest(out) <= width);
  const std::string all = without_blanks(out);
  for (const auto& row : t.rows)
    for (const std::string& cell : row) RC_ASSERT(all.find(cell) != all.npos);
}

TEST(Terminal, TextFromOutsideDoesNotDriveIt) {
  EXPECT_EQ(printable("a\x1b[31mb\x07\n\xc2\x9b"
                      "c"),
            "a\\x1b[31mb\\x07\\x0a\\u009bc");
  EXPECT_EQ(printable("o\u202Etxt.\u2066q\u200B\uFEFF"), "o\\u202etxt.\\u2066q\\u200b\\ufeff");
  EXPECT_EQ(printable("\xff\xe2\x80"), "\\xff\\xe2\\x80");
  EXPECT_STREQ(UsageError("tensor '\u202Eq\n'").what(), "tensor '\\u202eq\\x0a'");
  EXPECT_EQ(printable("β"), "β");
}

// ---------------------------------------------------------------- markup

TEST(Html, TextIsEscaped) {
  EXPECT_EQ(text("<a href=\"x\">&'").str(), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
  EXPECT_EQ("td"_tag("title", "\"><script>")("x"_html).str(), "<td title=\"&quot;&gt;&lt;script&gt;\">x</td>");
}

TEST(Html, WhatIsNoCharacterOfXmlIsReplaced) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(text("\x01").str(), r);
  EXPECT_EQ(text("\xff").str(), r);
  EXPECT_EQ(text("\xc0\xaf").str(), r + r) << "overlong";
  EXPECT_EQ(text("\xed\xa0\x80").str(), r + r + r) << "surrogate";
  EXPECT_EQ(text("\xce").str(), r) << "cut off";
  EXPECT_EQ(text("β→𝛼").str(), "β→𝛼");
}

TEST(Html, FormulasInBothNotations) {
  EXPECT_THAT(math("e = v - S'x").str(), HasSubstr("<i>S</i><sup><span>′</span></sup><i>x</i>"));
  EXPECT_THAT(math("M for H in the output").str(), HasSubstr("> for <"));
  EXPECT_THAT(math(R"(S_{t-1} k_t^\top)").str(),
              HasSubstr("<span class=\"scripts\"><span><span>⊤</span></span><span><i>t</i>"));
  EXPECT_THAT(math(R"(\alpha_t)").str(), HasSubstr("<i>α</i><sub><i>t</i></sub>"));
}

RC_GTEST_PROP(Html, AnyFormulaEndsAndIsBalanced, (const std::string& s)) {
  const std::string out = math(s).str();
  RC_ASSERT(std::ranges::count(out, '<') == std::ranges::count(out, '>'));
}

// ---------------------------------------------------------------- pictures

TEST(HeatMap, ColoursFollowTheVerdict) {
  EXPECT_EQ(heat_class(0), "h0");
  EXPECT_EQ(heat_class(1.49), "h2");
  EXPECT_EQ(heat_class(kMarginal), "h3");
  EXPECT_EQ(heat_class(kFailed), "h4");
  EXPECT_EQ(heat_class(1e9), "h7");
  EXPECT_EQ(heat_class(NAN), "h8");
  EXPECT_EQ(heat_class(INFINITY), "h8");
}

TEST(HeatMap, OneBadTokenOfManyIsSeen) {
  Mat<double> ratio = Mat<double>::Constant(2, 8192, 0.1);
  ratio(1, 5000) = 7;
  const std::string s =
      draw(HeatMap{.caption = {"x", "t", "d"}, .ratio = ratio, .row_name = "head", .column_name = "token"}).str();
  EXPECT_THAT(s, HasSubstr("<path class=\"h5\" d=\"M97 1h1v1h-1z\"/>")) << "5000 of 8192 is column 97 of 160";
  ratio(1, 5000) = 0.1;
  EXPECT_THAT(
      draw(HeatMap{.caption = {"x", "t", "d"}, .ratio = ratio, .row_name = "head", .column_name = "token"}).str(),
      Not(HasSubstr("h5")));
}

TEST(Plot, TheWorstOfEachTokenAndWhatIsNotFinite) {
  Mat<double> ratio(2, 2);
  ratio << 0.5, 1, 3, NAN;
  const Series s = envelope("o", ratio);
  ASSERT_EQ(s.points.size(), 4u);
  EXPECT_EQ(s.points[0].second, 3);
  EXPECT_TRUE(std::isnan(s.points[2].second));
  const std::string page =
      draw(Plot{.caption = {"x", "t", "d"}, .x_name = "", .y_name = "", .x_ticks = {}, .series = {s}}).str();
  EXPECT_THAT(page, HasSubstr("beyond"));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

TEST(Ticks, AreAtRoundNumbersAndNotTooMany) {
  for (const Index n : {1, 2, 3, 64, 100, 8192, 65536}) {
    const Ticks t = cell_ticks(n, 8, true);
    EXPECT_LE(t.size(), 8u);
    EXPECT_EQ(t[0].second, "0");
    if (t.size() > 1) {
      EXPECT_EQ(std::stoll(t[1].second) & (std::stoll(t[1].second) - 1), 0);
    }
  }
  EXPECT_EQ(cell_ticks(100, 8, false)[1].second, "20");
}

TEST(Commands, AWordIsQuotedForTheShell) {
  EXPECT_EQ(shell_word("a/b-1.npz"), "a/b-1.npz");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$(rm)"), "'$(rm)'");
}

}  // namespace
}  // namespace delta
