// SPDX-License-Identifier: Apache-2.0
// `deltaref check` as its users meet it: exit status, JSON, reproducers, and messages for wrong usage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Ran {
  int status;
  std::string out;
};

/// Runs the program with these arguments. \param redirect what happens to its error output
Ran run_program(const std::string& arguments, const std::string& redirect = "2>/dev/null") {
  FILE* pipe = popen((std::string(DELTAREF_PROGRAM) + " " + arguments + " " + redirect).c_str(), "r");
  std::string out;
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out};
}
Ran run(const std::string& arguments, const std::string& redirect = "2>/dev/null") {
  return run_program("check " + arguments, redirect);
}
std::string message(const std::string& arguments) { return run(arguments, "2>&1 >/dev/null").out; }

TEST(CheckCommand, JsonIsOneDocumentWithEverythingInIt) {
  const Ran r = run("--quick --rule gdn --family gate_half signed_swap --json");
  ASSERT_EQ(r.status, 0);
  const json j = json::parse(r.out);
  int rows = 0;
  for (const char* verdict : {"passed", "marginal", "failed", "untrusted", "skipped"})
    rows += j.at("summary").at(verdict).get<int>();
  EXPECT_EQ(rows, static_cast<int>(j.at("rows").size()));
  EXPECT_EQ(j["summary"]["failed"], 0);
  EXPECT_GT(j["summary"]["passed"], 50);
  for (const json& row : j["rows"]) {
    for (const char* key : {"rule", "form", "against", "scalar", "family", "shape", "kind", "verdict"})
      EXPECT_TRUE(row.at(key).is_string()) << key;
    EXPECT_EQ(row["rule"], "gated_delta") << "an alias is resolved";
    EXPECT_TRUE(row.at("ratio").is_number() || row.at("ratio").is_null());
    EXPECT_TRUE(row.at("seed").is_number());
    EXPECT_TRUE(row["kind"] == "exact" || row["kind"] == "ratio");
    if (row["family"] == "signed_swap" && row["verdict"] == "passed") {
      EXPECT_EQ(row["ratio"], 0) << row;
    }
  }
}

TEST(CheckCommand, EveryRowCanBeRunAgainAlone) {
  const json all = json::parse(run("--rule q_delta --family alpha_zero slack_nan decay_underflow --seed 5 --json").out);
  std::size_t i = 0;
  for (const json& row : all["rows"]) {
    if (++i % 17 != 0) continue;
    std::string s;
    for (const char* key : {"rule", "form", "family", "shape", "scalar"})
      s += " --" + std::string(key) + " " + row[key].get<std::string>();
    const std::string against = row["against"];
    if (against != "paper") s += " --law " + against.substr(5);
    const json again = json::parse(run(s + " --seed 5 --json").out);
    ASSERT_EQ(again["rows"].size(), 1u) << s;
    EXPECT_EQ(again["rows"][0], row);
  }
  EXPECT_GT(i, 100u);
}

TEST(CheckCommand, PrintsATableThatFitsAndOneSummaryLine) {
  const Ran r = run("--quick --rule q_delta --family gate_half");
  EXPECT_EQ(r.status, 0);
  EXPECT_THAT(r.out, HasSubstr("q_delta"));
  EXPECT_THAT(r.out, HasSubstr("contraction"));
  EXPECT_THAT(r.out, HasSubstr("tracking"));
  EXPECT_THAT(r.out, HasSubstr(" 0 failed, "));
  for (std::size_t begin = 0, end; (end = r.out.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 120u) << r.out.substr(begin, end - begin);
}

TEST(CheckCommand, IllPosedIsUntrustedAndNotAFailure) {
  const Ran r = run("--rule delta --family raw_keys --form chunkwise --shape T65_K4_V3_C64 --scalar bf16 --json");
  const json j = json::parse(r.out);
  ASSERT_EQ(j["rows"].size(), 1u);
  EXPECT_EQ(j["rows"][0]["verdict"], "untrusted");
  EXPECT_TRUE(j["rows"][0]["ratio"].is_null());
  EXPECT_EQ(r.status, 1) << "no case was run";
}

TEST(CheckCommand, AFormatTooNarrowForTheInputsIsSkipped) {
  const json j = json::parse(run("--rule delta --family large_state --scalar fp16 fp32 --json").out);
  for (const json& row : j["rows"]) EXPECT_EQ(row["verdict"], row["scalar"] == "fp16" ? "skipped" : "passed") << row;
}

TEST(CheckCommand, NoCaseRunIsAFailure) {
  const Ran r = run("--rule kda --form chunkwise --law chunk_size");
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(message("--rule kda --form chunkwise --law chunk_size"), HasSubstr("no case was run"));
}

TEST(CheckCommand, WrongUsageIsOneLineThatListsTheChoices) {
  for (const auto& [arguments, expected] : std::initializer_list<std::pair<const char*, const char*>>{
           {"--rule q_delat", "unknown rule 'q_delat'; expected one of "},
           {"--form chunky", "unknown form 'chunky'; expected one of recurrent"},
           {"--family nope", "unknown family 'nope'; expected one of gate_half"},
           {"--scalar fp8", "unknown scalar 'fp8'; expected one of rational"},
           {"--law gravity", "unknown law 'gravity'; expected one of chunk_size"},
           {"--shape T5_Q7", "shape 'T5_Q7': unknown field 'Q7'"},
           {"--shape H2_HV3", "HV must be a multiple of H"},
           {"--form parallel --shape T20000", "holds a matrix of 20000 x 20000 numbers"}}) {
    EXPECT_EQ(run(arguments).status, 2) << arguments;
    const std::string text = message(arguments);
    EXPECT_THAT(text, HasSubstr(expected));
    EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
  }
}

TEST(Program, KnowsItsVersion) {
  const Ran r = run_program("--version");
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out, "deltaref " DELTAREF_VERSION "\n");
}

TEST(Program, ASeedIsAWholeNumber) {
  const std::string a_case = "repro --rule delta --form scan --family gate_half --shape T5 --scalar gf61 --seed ";
  EXPECT_EQ(run_program(a_case + "18446744073709551615").status, 0);
  for (const std::string& command : {std::string("check --quick --seed "), a_case})
    for (const char* seed : {"-1", "-0", "+1", "1.5", "0x1", "18446744073709551616", "''", "many"}) {
      EXPECT_EQ(run_program(command + seed).status, 2) << command << seed;
      const std::string text = run_program(command + seed, "2>&1 >/dev/null").out;
      EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
    }
}

TEST(CheckCommand, ListNamesEverythingWithItsReason) {
  const Ran r = run("--list");
  EXPECT_EQ(r.status, 0);
  for (const char* name : {"gated_delta", "one_solve", "gf61", "signed_swap", "no rounding at all", "chunk_size", "R2"})
    EXPECT_THAT(r.out, HasSubstr(name));
  EXPECT_TRUE(json::accept(run("--list --json").out));
}

}  // namespace
