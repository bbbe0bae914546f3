// SPDX-License-Identifier: Apache-2.0
#include "checks/vectors/write.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

namespace delta {
namespace {

using Axes = std::vector<std::int64_t>;

void add_rows(Dump& d, const std::string& name, const Tensor<double>& x, Dtype dtype, bool channels,
              bool more = false) {
  if (x.empty()) return;
  Axes shape{x.B, x.tokens, x.heads};
  if (more) shape.push_back(x.rows);
  if (channels) shape.push_back(x.cols);
  d.add(name, dtype, shape, x.data);
}

/// [N * HV] of [d_v x d_k] as [N, HV, d_k, d_v] or [N, HV, d_v, d_k]
void add_states(Dump& d, const std::string& name, Index HV, const std::vector<Mat<double>>& S, Dtype dtype, bool kv) {
  if (S.empty()) return;
  const Index d_v = S[0].rows(), d_k = S[0].cols();
  std::vector<double> data;
  for (const Mat<double>& M : S)
    for (Index r = 0; r < (kv ? d_k : d_v); ++r)
      for (Index c = 0; c < (kv ? d_v : d_k); ++c) data.push_back(kv ? M(c, r) : M(r, c));
  const auto N = static_cast<Index>(S.size()) / HV;
  d.add(name, dtype, kv ? Axes{N, HV, d_k, d_v} : Axes{N, HV, d_v, d_k}, data);
}

void add_tensors(Dump& d, const Rule& rule, const Problem<double>& p, const Storage& how, const std::string& prefix,
                 Dtype rows, Dtype numbers) {
  const std::string decay = how.log_gate || !prefix.empty() ? "g" : "alpha";
  const std::string further = prefix.empty() ? "" : "gradient.";
  add_rows(d, prefix + "q", p.q, rows, true), add_rows(d, prefix + "k", p.k, rows, true);
  add_rows(d, prefix + "v", p.v, rows, true);
  add_rows(d, prefix + "beta", p.beta, numbers, rule.info.strength == Strength::per_value);
  add_rows(d, prefix + decay, p.alpha, numbers, rule.info.forget == Forget::per_channel);
  add_rows(d, prefix + "lambda", p.lambda, numbers, false);
  for (std::size_t i = 0; i < p.inputs.size(); ++i) {
    const Input& input = rule.info.inputs[i];
    add_rows(d, further + std::string(input.name), p.inputs[i], rows, input.extent != Extent::one, input.more);
  }
  add_states(d, prefix.empty() ? "initial_state" : prefix + "_initial_state", p.shape.HV, p.S0, numbers, how.kv);
}

/// The shortest text that reads back as x.
std::string decimal(double x) {
  char s[32];
  return {s, std::to_chars(s, s + sizeof s, x).ptr};
}

}  // namespace

Dump dump_of(const Rule& rule, const Problem<double>& p, const Storage& how) {
  Dump d;
  add_tensors(d, rule, p, how, "", how.rows, how.numbers);
  if (const std::vector<Index>& at = p.shape.offsets; !at.empty())
    d.add("cu_seqlens", Dtype::i64, {static_cast<std::int64_t>(at.size())}, std::vector<double>(at.begin(), at.end()));
  d.metadata = {{"rule", std::string(rule.info.id)},
                {"scale", decimal(p.scale)},
                {"state_layout", how.kv ? "kv" : "vk"},
                {"producer", "deltaref"}};
  if (p.l2norm) d.metadata["qk_l2norm"] = decimal(*p.l2norm);
  return d;
}

void add_result(Dump& d, const Shape& z, const Result<double>& result, Dtype o, Dtype state, bool kv,
                const std::string& o_name, const std::string& state_name) {
  Tensor<double> O(z.B, z.T, z.HV, z.d_v);  // rows of no sequence stay zero
  std::vector<Mat<double>> S;
  for (Index n = 0; n < z.sequences(); ++n)
    for (Index j = 0; j < z.HV; ++j) {
      const Output<double>& lane = result[S.size()];
      for (Index t = 0; t < z.length(n); ++t)
        Eigen::Map<Vec<double>>(O.at(z.batch(n), z.begin(n) + t, j), z.d_v) = lane.O.row(t).transpose();
      S.push_back(lane.S);
    }
  add_rows(d, o_name, O, o, true);
  add_states(d, state_name, z.HV, S, state, kv);
}

void add_gradient(Dump& d, const Rule& rule, const Problem<double>& gradient, const Storage& how) {
  add_tensors(d, rule, gradient, how, "d", how.outputs, how.outputs);
}

void add_intermediates(Dump& d, const Shape& z, std::string_view form, const Intermediates& shown) {
  const auto lanes = static_cast<std::size_t>(z.sequences() * z.HV);
  for (const auto& [name, streams] : shown) {
    std::size_t chunks = 0;
    Index rows = 0, cols = 0;
    for (const auto& stream : streams) {
      chunks = std::max(chunks, stream.size());
      for (const Mat<double>& M : stream) rows = std::max(rows, M.rows()), cols = std::max(cols, M.cols());
    }
    if (chunks == 0 || lanes == 0) continue;
    const std::size_t channels = streams.size() / lanes, size = static_cast<std::size_t>(rows * cols);
    std::vector<double> data(lanes * channels * chunks * size);
    for (std::size_t s = 0; s < streams.size(); ++s)
      for (std::size_t c = 0; c < streams[s].size(); ++c)
        for (Index r = 0; r < streams[s][c].rows(); ++r)
          for (Index i = 0; i < streams[s][c].cols(); ++i)
            data[(s * chunks + c) * size + static_cast<std::size_t>(r * cols + i)] = streams[s][c](r, i);
    Axes shape{z.sequences(), z.HV};
    if (channels > 1) shape.push_back(static_cast<std::int64_t>(channels));
    shape.push_back(static_cast<std::int64_t>(chunks)), shape.push_back(rows);
    if (name != "gamma" && !name.starts_with("e_")) shape.push_back(cols);  // these are vectors
    d.add(std::string(form) + "." + name, Dtype::fp64, shape, data);
  }
}

std::vector<std::byte> save(const Dump& d, const std::string& path) {
  std::vector<std::byte> bytes = write_safetensors(d.tensors, d.metadata);
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw UsageError(path + ": cannot write: " + std::strerror(errno) + "; try another directory");
  return bytes;
}

}  // namespace delta
