// SPDX-License-Identifier: Apache-2.0
// `verify --analyse`: the figures of a head on sequences whose figures are known, and the command as its users meet it.
#include "checks/report/analysis_report.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace delta {
namespace {

using testing::HasSubstr;

/// Q-Delta's growing pair, 40 tokens: head 0 with lambda = 3/4, head 1 the same without the query.
Dump growing_pair(std::int64_t T = 40) {
  std::vector<double> q, k, zeros, ones, lambda;
  for (std::int64_t t = 0; t < T; ++t)
    for (int head = 0; head < 2; ++head) {
      if (t % 2 == 0)
        k.insert(k.end(), {0, 1}), q.insert(q.end(), {-1, 0});
      else
        k.insert(k.end(), {0.6, -0.8}), q.insert(q.end(), {-0.8, -0.6});
      zeros.insert(zeros.end(), {0, 0}), ones.push_back(1), lambda.push_back(head == 0 ? 0.75 : 0);
    }
  Dump d{.file = "made"};
  d.add("q", Dtype::fp64, {1, T, 2, 2}, q), d.add("k", Dtype::fp64, {1, T, 2, 2}, k);
  d.add("v", Dtype::fp64, {1, T, 2, 2}, zeros), d.add("o", Dtype::fp64, {1, T, 2, 2}, zeros);
  d.add("beta", Dtype::fp64, {1, T, 2}, ones), d.add("lambda", Dtype::fp64, {1, T, 2}, lambda);
  d.metadata = {{"rule", "q_delta"}, {"scale", "1"}, {"state_layout", "kv"}};
  return d;
}

TEST(Analyse, TheGrowingPairIsFoundAndComesFirst) {
  const Analysis a = analyse(growing_pair(), {}, 2);
  ASSERT_EQ(a.heads.size(), 2u);
  const HeadAnalysis &grows = a.heads[0], &safe = a.heads[1];
  EXPECT_EQ(grows.head, 0);
  EXPECT_NEAR(grows.least_factor, 0, 1e-15);  // every error is zero after its write,
  EXPECT_NEAR(grows.largest_factor, 0, 1e-15);
  EXPECT_GT(grows.growth, 7523);  // and the state grows by 25/16 every two tokens
  EXPECT_NEAR(grows.norm, 1.25, 1e-12);
  EXPECT_NEAR(grows.search, 1.25, 1e-12);
  EXPECT_FALSE(grows.certificate.holds);
  EXPECT_EQ(grows.certificate.fails_at, 0u);
  EXPECT_NEAR(grows.certificate.largest, 1.25, 1e-12);
  EXPECT_TRUE(grows.every_vector);
  EXPECT_NEAR(grows.inverse.largest_entry, 363.5 * std::pow(25. / 16, 4), 1);  // from C = 32 to 40

  EXPECT_TRUE(safe.certificate.holds);
  EXPECT_LE(safe.growth, 1 + 1e-12);
}

TEST(Analyse, TheSeriesHasEveryStepAndEveryChunk) {
  const Dump d = growing_pair(70);
  const AnalysisSeries s = analysis_series(Subject(d, {}), 0, 0, 16);
  EXPECT_EQ(s.factor.size(), 70u);
  EXPECT_EQ(s.norm.size(), 70u);
  EXPECT_EQ(s.bound.size(), 70u);
  ASSERT_EQ(s.inverse.size(), 5u);
  EXPECT_NEAR(s.inverse[0].largest_entry, 10, 0.5);
  EXPECT_NEAR(s.inverse[0].condition, 337, 1);
}

TEST(Analyse, NoNormIsAboveItsBoundOnRealKernels) {
  for (const char* file : {"real_qdelta_chunk_0", "real_gdn_chunk_0", "real_kda_chunk", "real_mamba2_chunk",
                           "real_delta_chunk_0", "case_18"}) {
    const Dump d = read_dump(DELTAREF_DUMPS "/" + std::string(file) + ".safetensors");
    const Subject subject(d, {});
    for (Index lane = 0; lane < subject.lanes(); ++lane) {
      const Index n = lane / subject.shape().HV, j = lane % subject.shape().HV;
      const AnalysisSeries s = analysis_series(subject, n, j);
      ASSERT_FALSE(s.norm.empty()) << file;
      double largest = 0;
      for (std::size_t t = 0; t < s.norm.size(); ++t) {
        EXPECT_LE(s.norm[t], s.bound[t] + 1e-9) << file << " t " << t;
        largest = std::max(largest, s.norm[t]);
      }
      EXPECT_LE(s.search, largest + 1e-9) << file;
      EXPECT_LE(s.growth, certificate(s.norm).product * (1 + 1e-9)) << file;
    }
  }
}

TEST(Analyse, AnEmptySequenceIsLeftOut) {
  EXPECT_TRUE(analyse(growing_pair(0), {}, 1).heads.empty());
  EXPECT_THAT(analysis_text(analyse(growing_pair(0), {}, 1), {}), HasSubstr("nothing to analyse"));
}

// ---------------------------------------------------------------- the command

struct Ran {
  int status;
  std::string out;
};
Ran run(const std::string& arguments) {
  FILE* pipe = popen((std::string(DELTAREF_PROGRAM) + " verify " + arguments).c_str(), "r");
  std::string out;
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out};
}

TEST(AnalyseCommand, PrintsATableBelowTheVerdictAndPutsItIntoJson) {
  const std::string file = DELTAREF_DUMPS "/real_qdelta_chunk_0.safetensors";
  const Ran text = run("--analyse " + file), json = run("--analyse --json " + file);
  EXPECT_EQ(text.status, 1) << "the verdict decides";
  EXPECT_THAT(text.out, HasSubstr("2 of 2 heads"));
  EXPECT_THAT(text.out, HasSubstr("fails at t 0"));
  EXPECT_THAT(run(file).out, testing::Not(HasSubstr("stability")));
  const nlohmann::json a = nlohmann::json::parse(json.out)["files"][0]["analysis"];
  ASSERT_EQ(a["heads"].size(), 2u);
  for (const char* key : {"sequence", "head", "factor", "norm", "certificate", "growth", "found", "inverse"})
    EXPECT_TRUE(a["heads"][0].contains(key)) << key;
  EXPECT_EQ(a["heads"][0]["certificate"]["holds"], false);
  EXPECT_EQ(a["heads"][0]["certificate"]["fails_at"], 0);
}

TEST(AnalyseCommand, TheReportDrawsTheWorstHead) {
  const std::string html = analysis_html(analyse(growing_pair(130), {}, 1), "x").str();
  for (const char* part : {"x-norms", "x-factors", "x-inverse", "fails at t 0", "1.2500", "sequence 0, head 0"})
    EXPECT_THAT(html, HasSubstr(part));
}

TEST(AnalyseCommand, BadInputIsOneLine) {
  const Ran r = run("--analyse /nonexistent.npz 2>&1 >/dev/null");
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(std::ranges::count(r.out, '\n'), 1) << r.out;
}

}  // namespace
}  // namespace delta
