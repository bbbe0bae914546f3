// SPDX-License-Identifier: Apache-2.0
#include "checks/vectors/vectors.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "checks/core/families.hpp"
#include "checks/vectors/sha256.hpp"
#include "checks/vectors/write.hpp"

namespace delta {
namespace {

using Json = nlohmann::ordered_json;

constexpr Vector kVectors[] = {
    {"delta", "delta", "gate_half", "B1_T40_H2_HV2_K16_V16_C16", "no decay: two chunks and a half"},
    {"gated_delta", "gated_delta", "gate_half", "B1_T130_H1_HV1_K64_V64_C64",
     "the size of a kernel's tile: two chunks of 64 and two tokens", true, true},
    {"gated_delta_grouped", "gated_delta", "gate_strong", "B2_T40_H2_HV4_K16_V8_C16",
     "two value heads a key head, two batch entries, d_k and d_v differ, states [d_v, d_k]", false, true},
    {"gated_delta_packed", "gated_delta", "slack_nan", "B1_T56_H1_HV2_K16_V8_packed0.5.5.32.50_C16",
     "packed sequences, one of them empty, and rows of NaN that belong to none", true, true},
    {"gated_delta_reset", "gated_delta", "alpha_zero", "B1_T40_H1_HV2_K16_V16_C16",
     "decays of zero inside a chunk: g = -infinity", true, true},
    {"gated_delta_alpha", "gated_delta", "alpha_zero", "B1_T40_H1_HV2_K16_V16_C16",
     "the same with the decay itself, alpha = 0", false, false},
    {"gated_delta_l2norm", "gated_delta", "raw_keys", "B1_T24_H1_HV2_K16_V16_C16",
     "q and k are brought to unit length by the kernel", true, true, 1e-6},
    {"gated_delta_one_token", "gated_delta", "gate_half", "B2_T1_H1_HV2_K16_V16_C16", "one token", true, true, -1, 3},
    {"q_delta", "q_delta", "gate_half", "B1_T40_H1_HV2_K16_V16_C16", "the query's share of the prediction", true, true},
    {"q_delta_vk", "q_delta", "lambda_one", "B1_T40_H2_HV4_K16_V8_C16", "lambda = 1, grouped heads, states [d_v, d_k]",
     false, true},
    {"mamba2", "mamba2", "gate_half", "B1_T40_H1_HV2_K16_V16_C16", "no erase", true, true},
    {"kda", "kda", "gate_half", "B1_T40_H1_HV2_K16_V8_C16", "a decay per key channel", true, true},
    {"kda_zero_channel", "kda", "zero_channel", "B1_T40_H1_HV2_K16_V8_C16",
     "one key channel is cleared by every token: alpha = 0 there", false, false},
    {"comba", "comba", "gate_half", "B1_T40_H1_HV2_K16_V16_C16", "read before the decay, output corrected", true, true},
    {"gdn2", "gdn2", "gate_half", "B1_T24_H1_HV2_K16_V8_C16", "erase and write gates per channel", true, true},
    {"delta_product", "delta_product", "gate_half", "B1_T24_H1_HV2_K16_V8_N2_C8", "two micro-steps a token", true,
     true},
    {"rwkv7", "rwkv7", "gate_half", "B1_T24_H1_HV2_K16_V8_C16", "a removal key of its own", true, true},
    {"gated_delta_channel", "gated_delta_channel", "gate_half", "B1_T24_H1_HV1_K8_V4_C8",
     "beta per value channel: a recurrence for each", true, true},
};

/// Exact numbers rounded to fp64; zero has no sign.
double rounded(const Mp50& x) { return Scalar<Mp50>::to_double(x) + 0.0; }

Result<double> rounded(const Result<Mp50>& r) {
  Result<double> out;
  for (const Output<Mp50>& lane : r) {
    auto all = [](const Mat<Mp50>& A) {
      return Mat<double>(A.unaryExpr([](const Mp50& x) { return rounded(x); }).cast<double>());
    };
    out.push_back({all(lane.O), all(lane.S)});
  }
  return out;
}

/// A log decay without a logarithm: alpha - 1, which fp32 holds; a decay of zero is a reset still.
void take_log_gate(Problem<double>& p) {
  for (double& a : p.alpha.data) a = a == 0 ? -INFINITY : static_cast<float>(a - 1);
}

Mp50 exp_of(const Mp50& g) { return isfinite(g) ? Mp50(exp(g)) : Mp50(0); }

/// dO and dS of every lane: numbers of 8 bits, as the inputs are.
Result<double> draw_output_gradient(const Shape& z, std::uint64_t seed) {
  Random r(seed + 1000);
  Result<double> d;
  for (Index n = 0; n < z.sequences(); ++n)
    for (Index j = 0; j < z.HV; ++j) {
      Output<double> lane{Mat<double>(z.length(n), z.d_v), Mat<double>(z.d_v, z.d_k)};
      for (Mat<double>* A : {&lane.O, &lane.S})
        for (Index i = 0; i < A->rows(); ++i)
          for (Index c = 0; c < A->cols(); ++c) (*A)(i, c) = kBf16.round(r.normal());
      d.push_back(std::move(lane));
    }
  return d;
}

bool same_bits(const Result<double>& a, const Result<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].O != b[i].O || a[i].S != b[i].S) return false;
  return true;
}

// ---------------------------------------------------------------- the manifest

/// What the tensors that a form shows are, where an author would compare them.
struct Meaning {
  std::string_view tensor, shape, label, what;
};
constexpr Meaning kMeanings[] = {
    {"o", "[B,T,HV,d_v]", "", "output, exact, rounded to fp64"},
    {"final_state", "[N,HV,..]", "", "state after the last token, exact, rounded to fp64"},
    {"do, d_final_state", "as o, final_state", "",
     "what the gradients were taken for: of <do, o> + <d_final_state, S>"},
    {"dq, dk, dv, dbeta, dlambda, d_initial_state", "as what they belong to", "", "gradients, exact, rounded to fp64"},
    {"dg", "as g or alpha", "", "gradient of the log decay, alpha dalpha, exact, rounded to fp64"},
    {"gradient.NAME", "as NAME", "", "gradient of a further input of the rule, exact, rounded to fp64"},
    {"chunkwise.gamma", "[N,HV,chunks,R]", "F53", "alpha_1 .. alpha_i within the chunk"},
    {"chunkwise.H", "[N,HV,chunks,R,R]", "F53", "alpha_{j+1} .. alpha_i for j <= i"},
    {"chunkwise.L", "[N,HV,chunks,R,R]", "F83", "sl(B X Y^T)"},
    {"chunkwise.L_inverse", "[N,HV,chunks,R,R]", "F38", "(I + L)^-1"},
    {"chunkwise.L_g", "[N,HV,chunks,R,R]", "F83", "sl(B (H . X Y^T))"},
    {"chunkwise.L_g_inverse", "[N,HV,chunks,R,R]", "F38", "(I + L_g)^-1"},
    {"chunkwise.W", "[N,HV,chunks,R,d_k]", "F83", "(I + L) W = B X"},
    {"chunkwise.U", "[N,HV,chunks,R,d_v]", "F83", "U~: (I + L_g) U~ = B V"},
    {"chunkwise.Z", "[N,HV,chunks,R,d_v]", "F84", "U~ - D_g W S^T"},
    {"chunkwise.S", "[N,HV,chunks,d_v,d_k]", "F84", "the state at the chunk's end"},
    {"one_solve.L", "[N,HV,chunks,R,R]", "C-one-solve", "L_ij = (Phi_{j..i-1} y_j) . p_i"},
    {"one_solve.L_inverse", "[N,HV,chunks,R,R]", "F38", "(I + L)^-1"},
    {"one_solve.P_bar", "[N,HV,chunks,R,d_k]", "C-one-solve", "Phi_{0..i-1} p_i"},
    {"one_solve.U", "[N,HV,chunks,R,d_v]", "C-one-solve", "beta_i v_i"},
    {"one_solve.Z", "[N,HV,chunks,R,d_v]", "C-one-solve", "(I + L) Z = U - P_bar S^T"},
    {"one_solve.Y_out", "[N,HV,chunks,R,d_k]", "C-one-solve", "Phi_{j..R} y_j"},
    {"one_solve.A", "[N,HV,chunks,C,R]", "C-one-solve", "A_tj = q_t . (Phi_{j..t} y_j)"},
    {"one_solve.Q_in", "[N,HV,chunks,C,d_k]", "C-one-solve", "Phi_{0..t} q_t"},
    {"one_solve.S", "[N,HV,chunks,d_v,d_k]", "C-one-solve", "the state at the chunk's end"},
};

Json entry(const Vector& v, const Dump& d, std::span<const std::byte> bytes) {
  const RuleInfo& info = find_rule(v.rule)->info;
  Json tensors = Json::object();
  for (const auto& [tensor, t] : d.tensors) tensors[tensor] = {{"type", name(t.dtype)}, {"shape", t.shape}};
  return {{"name", v.name},
          {"file", std::string(v.name) + ".safetensors"},
          {"sha256", sha256(bytes)},
          {"bytes", bytes.size()},
          {"rule", v.rule},
          {"formula", info.label},
          {"recurrence", info.formula},
          {"why", v.why},
          {"family", v.family},
          {"size", v.size},
          {"chunk", Size::parse(v.size).C},
          {"seed", v.seed},
          {"metadata", d.metadata},
          {"tensors", tensors}};
}

std::ofstream open_for_writing(const std::filesystem::path& path) {
  std::ofstream out(path, std::ios::binary);
  if (!out) throw UsageError(path.string() + ": cannot write: " + std::strerror(errno) + "; try another directory");
  return out;
}

}  // namespace

std::span<const Vector> vectors() { return kVectors; }

Dump make_vector(const Vector& v) {
  const Rule& rule = *find_rule(v.rule);
  const Size size = Size::parse(v.size);
  Problem<double> p = draw(rule.info, *find_family(v.family), size, v.seed);
  if (v.log_gate) take_log_gate(p);
  if (v.l2norm_eps >= 0) p.l2norm = v.l2norm_eps;
  const Storage how{.kv = v.kv, .log_gate = v.log_gate};

  Problem<Mp50> exact = p.map<Mp50>([](double x) { return Mp50(x); });
  if (v.log_gate) exact.alpha = exact.alpha.map<Mp50>(exp_of);

  const std::string form = applies(rule, "chunkwise", p) ? "chunkwise" : "one_solve";
  Intermediates shown;
  const Result<double> result = rounded(compute<Mp50>(rule, "recurrent", size.C, exact));
  if (!same_bits(result, rounded(compute_watched<Mp50>(rule, form, size.C, exact, shown))))
    throw std::logic_error("the forms round differently in vector " + std::string(v.name));

  Dump d = dump_of(rule, p, how);
  d.file = v.name;
  d.metadata["note"] = v.why;
  add_result(d, size.shape, result, Dtype::fp64, Dtype::fp64, v.kv);
  add_intermediates(d, size.shape, form, shown);
  if (rule.has_gradient() && !p.l2norm) {
    const Result<double> seen = draw_output_gradient(size.shape, v.seed);
    Result<Mp50> dO;
    for (const Output<double>& lane : seen) dO.push_back({lane.O.cast<Mp50>(), lane.S.cast<Mp50>()});
    Problem<Mp50> g = compute_gradient<Mp50>(rule, exact, dO);
    for (std::size_t i = 0; i < g.alpha.data.size(); ++i) g.alpha.data[i] *= exact.alpha.data[i];  // dg = alpha dalpha
    if (p.S0.empty()) g.S0.clear();
    add_result(d, size.shape, seen, Dtype::bf16, Dtype::fp32, v.kv, "do", "d_final_state");
    add_gradient(d, rule, g.map<double>([](const Mp50& x) { return rounded(x); }), how);
  }
  return d;
}

std::vector<VectorFile> write_vectors(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw UsageError(directory + ": cannot make the directory: " + error.message() + "; try another --out");
  Json all = Json::array(), tensors = Json::object();
  for (const Meaning& m : kMeanings)
    tensors[std::string(m.tensor)] = {{"shape", m.shape}, {"formula", m.label}, {"what", m.what}};
  std::vector<VectorFile> written;
  for (const Vector& v : kVectors) {
    const Dump d = make_vector(v);
    const std::string file = std::string(v.name) + ".safetensors";
    const std::vector<std::byte> bytes = save(d, (std::filesystem::path(directory) / file).string());
    all.push_back(entry(v, d, bytes));
    written.push_back({file, bytes.size(), {}});
  }
  const Json manifest{{"version", kVectorsVersion},
                      {"convention",
                       "S is d_v x d_k, o = S q, scale in the read-out only; intermediates are in that layout whatever "
                       "state_layout says; R micro-steps a chunk; "
                       "what a shorter chunk or sequence lacks is zero"},
                      {"arithmetic", "168 bits, integers only; inputs have 8 significant bits"},
                      {"tensors", tensors},
                      {"vectors", all}};
  const std::filesystem::path path = std::filesystem::path(directory) / "manifest.json";
  std::ofstream out = open_for_writing(path);
  if (!(out << manifest.dump(1) << '\n').flush())
    throw UsageError(path.string() + ": cannot write: " + std::strerror(errno) + "; is the disk full?");
  return written;
}

std::vector<VectorFile> check_vectors(const std::string& directory) {
  const std::filesystem::path folder = directory, path = folder / "manifest.json";
  // Anything but a file, a pipe say, would keep us waiting.
  const auto open = [](const std::filesystem::path& p) {
    std::error_code error;
    return std::filesystem::is_regular_file(p, error) ? std::ifstream(p, std::ios::binary) : std::ifstream();
  };
  std::ifstream in = open(path);
  if (!in.is_open())
    throw UsageError(path.string() + ": cannot open; expected a directory that 'deltaref vectors --out' wrote");
  const Json manifest = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  auto text = [](const Json& j, const char* key) {
    return j.is_object() && j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
  };
  if (!manifest.is_object() || !manifest.contains("vectors") || !manifest["vectors"].is_array())
    throw UsageError(path.string() + ": is no manifest of test vectors; write them again with 'deltaref vectors'");
  std::vector<VectorFile> files;
  for (const Json& v : manifest["vectors"]) {
    VectorFile file{.name = text(v, "file")};
    if (file.name.empty() || file.name.find('/') != std::string::npos)
      throw UsageError(path.string() + ": an entry names no file beside it; write the vectors again");
    std::ifstream data = open(folder / file.name);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(data), {}};
    file.bytes = bytes.size();
    if (!data.is_open())
      file.problem = "missing";
    else if (sha256(std::as_bytes(std::span(bytes))) != text(v, "sha256"))
      file.problem = "its sha256 is not the manifest's: some bits are not those that were written";
    files.push_back(file);
  }
  return files;
}

}  // namespace delta
