// SPDX-License-Identifier: Apache-2.0
// Test vectors: the same bits each time, passed by the judge, consistent within themselves, and one flipped bit shows.
// And `repro`: the command that a failure prints.
#include "checks/vectors/vectors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checks/core/equivalence.hpp"
#include "checks/report/check_report.hpp"
#include "checks/vectors/case.hpp"
#include "checks/vectors/sha256.hpp"
#include "checks/vectors/write.hpp"
#include "checks/verify/verify.hpp"

namespace delta {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string hash(const std::string& text) { return sha256(std::as_bytes(std::span(text))); }

/// A directory of its own, and the vectors in it.
class Vectors : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::path(testing::TempDir()) / ("deltaref_vectors_" + std::to_string(getpid()));
    write_vectors(folder_ / "one");
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }
  static std::string folder(const char* name) { return folder_ / name; }

 private:
  static inline fs::path folder_;
};

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_F(Vectors, AreTheSameBitsEachTime) {
  write_vectors(folder("two"));
  for (const auto& entry : fs::directory_iterator(folder("one")))
    EXPECT_EQ(bytes_of(entry.path()), bytes_of(fs::path(folder("two")) / entry.path().filename())) << entry.path();
  // On every machine. Whoever changes a bit raises kVectorsVersion and puts the new hash here.
  EXPECT_EQ(kVectorsVersion, 1);
  EXPECT_EQ(hash(bytes_of(folder("one") + "/manifest.json")),
            "f49d9dedf6bd46256c6113fc21f65edc4498e10bddb6917dd3c9de153e9d9e94");
}

TEST_F(Vectors, AreWhatTheirManifestSaysUntilOneBitIsFlipped) {
  const std::vector<VectorFile> sound = check_vectors(folder("one"));
  EXPECT_EQ(sound.size(), vectors().size());
  for (const VectorFile& f : sound) EXPECT_EQ(f.problem, "") << f.name;

  const std::string damaged = folder("damaged");
  fs::copy(folder("one"), damaged);
  const std::string file = damaged + "/kda.safetensors";
  std::string bytes = bytes_of(file);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  fs::remove(damaged + "/gdn2.safetensors");
  for (const VectorFile& f : check_vectors(damaged)) {
    const char* problem = f.name == "kda.safetensors" ? "sha256" : f.name == "gdn2.safetensors" ? "missing" : "";
    EXPECT_THAT(f.problem, HasSubstr(problem));
    EXPECT_EQ(f.problem.empty(), *problem == 0) << f.name;
  }
  EXPECT_THROW(check_vectors(folder("nowhere")), UsageError);
  std::ofstream(damaged + "/manifest.json") << "[]";
  EXPECT_THROW(check_vectors(damaged), UsageError);
}

TEST_F(Vectors, ManifestNamesEveryTensorItsShapeAndItsFormula) {
  const nlohmann::json m = nlohmann::json::parse(bytes_of(folder("one") + "/manifest.json"));
  EXPECT_EQ(m["version"], kVectorsVersion);
  for (const auto& v : m["vectors"]) {
    const Dump d = read_dump(folder("one") + "/" + v["file"].get<std::string>());
    EXPECT_EQ(v["tensors"].size(), d.tensors.size());
    for (const auto& [name, t] : d.tensors) {
      EXPECT_EQ(v["tensors"][name]["shape"], t.shape) << name;
      const bool shown = name.find('.') != std::string::npos && !name.starts_with("gradient.");
      EXPECT_TRUE(!shown || m["tensors"].contains(name)) << name;
    }
    for (const char* key : {"rule", "formula", "sha256", "why", "chunk", "family"}) EXPECT_TRUE(v.contains(key)) << key;
  }
}

TEST_F(Vectors, PassTheJudgeWithTheirOwnOutputsWithoutARemark) {
  for (const Vector& v : vectors()) {
    const FileVerdict verdict = verify_file(folder("one") + "/" + std::string(v.name) + ".safetensors", {}, 2);
    EXPECT_EQ(verdict.verdict, Verdict::passed) << v.name << ": " << verdict.reason;
    EXPECT_LT(verdict.ratio(), 1e-3) << v.name;
    EXPECT_THAT(verdict.notes, testing::IsEmpty()) << v.name;
    EXPECT_EQ(verdict.find("dq") != nullptr, v.l2norm_eps < 0) << v.name << ": gradients are judged too";
  }
}

TEST_F(Vectors, JudgeTheOutputThatAnAuthorPutsIn) {
  Dump d = make_vector(vectors()[1]);
  const DumpTensor o = *d.find("o");
  std::vector<double> x(static_cast<std::size_t>(o.size()));
  o.read(0, x);
  d.add("o", Dtype::bf16, o.shape, x);  // rounded as a kernel stores it
  EXPECT_EQ(verify(d, {}, 2).verdict, Verdict::passed);
  x[x.size() - 3] += 1;  // one number
  d.add("o", Dtype::bf16, o.shape, x);
  EXPECT_EQ(verify(d, {}, 2).verdict, Verdict::failed);
}

/// One matrix of an intermediate: [.., rows, cols], the n-th.
Mat<double> matrix(const Dump& d, const std::string& name, Index n) {
  const DumpTensor& t = *d.find(name);
  const Index cols = t.shape.back(), rows = t.shape[t.shape.size() - 2];
  std::vector<double> x(static_cast<std::size_t>(rows * cols));
  t.read(n * rows * cols, x);
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  return Eigen::Map<RowMajor>(x.data(), rows, cols);
}

TEST_F(Vectors, IntermediatesSatisfyTheirEquations) {
  int with_w = 0;
  for (const Vector& v : vectors()) {
    SCOPED_TRACE(v.name);
    const Dump d = make_vector(v);
    const std::string form = d.find("chunkwise.L") ? "chunkwise." : "one_solve.";
    const DumpTensor& L = *d.find(form + "L");
    const Index R = L.shape.back(), chunks = L.shape[L.shape.size() - 3], lanes = L.size() / (R * R * chunks);
    const Mat<double> I = Mat<double>::Identity(R, R);
    for (Index n = 0; n < lanes * chunks; ++n) {
      // Rows that a short chunk lacks are zero in L and in its inverse: they are no rows of I either.
      const Mat<double> inverse = matrix(d, form + "L_inverse", n);
      const Mat<double> present = inverse.diagonal().asDiagonal();
      EXPECT_LT((inverse * (I + matrix(d, form + "L", n)) * present - present).norm(), 1e-12);
      if (form == "chunkwise.") {
        EXPECT_LT((matrix(d, form + "L_g_inverse", n) * (I + matrix(d, form + "L_g", n)) * present - present).norm(),
                  1e-12);
        ++with_w;
      }
    }
    if (v.rule == "gated_delta_channel" || v.name == "gated_delta_packed") continue;  // rows of states; empty sequences
    const auto final_state = [&](Index lane) {
      const Mat<double> S = matrix(d, "final_state", lane);
      return v.kv ? Mat<double>(S.transpose()) : S;
    };
    for (Index lane = 0; lane < lanes; ++lane)
      EXPECT_EQ(matrix(d, form + "S", lane * chunks + chunks - 1), final_state(lane)) << "the last chunk's state";
  }
  EXPECT_GT(with_w, 0);
}

double dot(const Dump& d, const std::string& a, const std::string& b) {
  double sum = 0;
  for (Index i = 0; i < d.find(a)->size(); ++i)
    if (const double x = d.find(a)->at(i), y = d.find(b)->at(i); std::isfinite(x * y)) sum += x * y;
  return sum;
}

TEST_F(Vectors, GradientsAreThoseOfALossThatIsLinearInValuesAndInitialState) {
  int with_gradient = 0;
  for (const Vector& v : vectors()) {
    const Dump d = make_vector(v);
    if (!d.find("dv") || v.rule == "mamba3" || v.rule == "delta_product") continue;  // their further inputs hold values
    SCOPED_TRACE(v.name);
    // <dO, O> + <dS, S> = <dV, V> + <dS_0, S_0>: O and S are linear in V and S_0 together.
    const double left = dot(d, "do", "o") + dot(d, "d_final_state", "final_state");
    const double right = dot(d, "dv", "v") + dot(d, "d_initial_state", "initial_state");
    EXPECT_NEAR(left, right, 1e-11 * (std::abs(left) + 100));
    ++with_gradient;
  }
  EXPECT_GT(with_gradient, 10);
}

// ---------------------------------------------------------------- repro

struct Ran {
  int status;
  std::string out;
};
Ran run_program(const std::string& arguments) {
  FILE* pipe = popen((std::string(DELTAREF_PROGRAM) + " " + arguments + " 2>&1").c_str(), "r");
  std::string out;
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out};
}

TEST(Repro, WhatAFailurePrintsIsACommandThatReplaysThatCase) {
  Selection what;
  what.rules = {"q_delta"}, what.families = {"alpha_zero", "slack_nan"}, what.seed = 5;
  what.forms = {"chunkwise", "scan"};
  std::vector<Row> rows;
  check_equivalence(what, [&](const Row& r) { rows.push_back(r); });
  ASSERT_GT(rows.size(), 50u);
  for (std::size_t i = 0; i < rows.size(); i += 7) {
    const std::string text = failure_text(rows[i], {.width = 60}), mark = " " + called_as() + " ";
    const std::size_t at = text.find(mark);
    ASSERT_NE(at, std::string::npos) << text;
    const std::string command = text.substr(at + mark.size(), text.size() - at - mark.size() - 1);
    const Ran r = run_program(command);
    EXPECT_EQ(r.status, 0) << command << '\n' << r.out;
    EXPECT_THAT(r.out, HasSubstr(std::string(name(rows[i].verdict)) + "  q_delta " + rows[i].form));
    EXPECT_THAT(r.out, HasSubstr("against " + rows[i].against));
  }
}

/// What follows a label in an output, up to the end of its line.
std::string after(const std::string& text, const std::string& label) {
  const std::size_t at = text.find(label);
  if (at == std::string::npos) return "";
  const std::size_t begin = text.find_first_not_of(' ', at + label.size());
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(Repro, AFailureLeadsToItsCommandAndToADumpThatTheDiagnosisNames) {
  const std::string folder = testing::TempDir() + "/deltaref_failed_" + std::to_string(getpid());
  const Ran failed = run_program(
      "check --rule gated_delta --form beta-twice --family gate_half --scalar double --shape B1_T40_H1_HV2_K8_V8_C8 "
      "--dump " +
      folder);
  ASSERT_EQ(failed.status, 1) << failed.out;
  const std::string command = after(failed.out, "  repro"), prefix = called_as() + " ";
  ASSERT_TRUE(command.starts_with(prefix)) << failed.out;
  const Ran again = run_program(command.substr(prefix.size()));
  EXPECT_EQ(again.status, 1) << again.out;
  EXPECT_EQ(after(again.out, "  repro"), command);
  const FileVerdict v = verify_file(after(failed.out, "  dump"), {}, 2);
  EXPECT_EQ(v.verdict, Verdict::failed) << v.reason;
  ASSERT_FALSE(v.diagnosis.empty());
  EXPECT_EQ(v.diagnosis[0].id, "beta-twice");
  std::filesystem::remove_all(folder);
}

TEST(Repro, DumpsTheCaseForVerifyWithWhatTheFormShows) {
  const std::string folder = testing::TempDir() + "/deltaref_repro_" + std::to_string(getpid());
  for (const char* scalar : {"double", "rational", "gf61", "mp50", "fp32"})
    for (const char* form : {"recurrent", "chunkwise", "one_solve", "parallel", "scan"}) {
      const Ran r = run_program(
          std::string("repro --rule gated_delta --family gate_half --shape B1_T21_H1_HV2_K6_V4_C8 --form ") + form +
          " --scalar " + scalar + " --dump " + folder);
      ASSERT_EQ(r.status, 0) << r.out;
      const std::size_t at = r.out.find("dump: ") + 6;
      const std::string file = r.out.substr(at, r.out.find('\n', at) - at);
      EXPECT_EQ(verify_file(file, {}, 2).verdict, Verdict::passed) << file;
      const Dump d = read_dump(file);
      const char* shown = std::string(form) == "scan" || std::string(form) == "parallel" ? ".A" : ".S";
      EXPECT_TRUE(d.find(form + std::string(shown))) << file;
    }
  std::filesystem::remove_all(folder);
}

TEST(Repro, WrongUsageIsOneLine) {
  const std::string rest = " --rule kda --family gate_half --scalar double --shape T9_K4_V4";
  for (const auto& [arguments, expected] : std::initializer_list<std::pair<std::string, const char*>>{
           {"repro --rule kda", "--form is required"},
           {"repro --form chunky" + rest, "unknown form 'chunky'; expected one of recurrent"},
           {"repro --form chunkwise --dump x" + rest, "the form chunkwise does not apply to kda"},
           {"repro --form scan --dump /proc/nowhere" + rest, "cannot make the directory"},
           {"vectors", "expected --out DIR"},
           {"vectors --check /proc", "expected a directory that"}}) {
    const Ran r = run_program(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_THAT(r.out, HasSubstr(expected));
  }
}

}  // namespace
}  // namespace delta
