// SPDX-License-Identifier: Apache-2.0
// wrong_kernel FILE: runs a kernel with one mistake and writes its tensors as `verify` takes them.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <vector>

#include "checks/dump/dump.hpp"

// The gated delta rule, token by token, for one head: S [d, d], a row for each value channel.
void kernel(int T, int d, const double* q, const double* k, const double* v, const double* beta, const double* g,
            double scale, double* S, double* o) {
  for (int t = 0; t < T; ++t, q += d, k += d, v += d, o += d)
    for (int i = 0; i < d; ++i) {
      double *row = S + i * d, predicted = 0, read = 0;
      for (int c = 0; c < d; ++c) predicted += row[c] * k[c];
      const double write = beta[t] * (v[i] - predicted);
      for (int c = 0; c < d; ++c) {
        row[c] = std::exp(g[t]) * row[c] + write * k[c];
        read += row[c] * q[c];
      }
      o[i] = scale * read;
    }
}

int main(int, char** arguments) {
  constexpr int T = 192, d = 32;
  std::uint64_t state = 1;
  const auto drawn = [&](int n, auto&& f) {
    std::vector<double> x(static_cast<std::size_t>(n));
    for (double& y : x) y = f(static_cast<double>((state = state * 6364136223846793005u + 1) >> 11) * 0x1p-53);
    return x;
  };
  const auto units = [&] {
    std::vector<double> x = drawn(T * d, [](double u) { return 2 * u - 1; });
    for (auto row = x.begin(); row != x.end(); row += d) {
      double sum = 0;
      for (int c = 0; c < d; ++c) sum += row[c] * row[c];
      for (int c = 0; c < d; ++c) row[c] /= std::sqrt(sum);
    }
    return x;
  };
  delta::Dump dump;
  const auto store = [&](const char* name, delta::Dtype type, std::vector<std::int64_t> shape, std::vector<double>& x) {
    dump.add(name, type, std::move(shape), x);
    dump.find(name)->read(0, x);  // the kernel takes what the file holds
  };
  std::vector<double> q = units(), k = units(), v = drawn(T * d, [](double u) { return 2 * u - 1; });
  std::vector<double> beta = drawn(T, [](double u) { return u; }),
                      g = drawn(T, [](double u) { return -0.1 * u * u * u; });
  store("q", delta::Dtype::bf16, {1, T, 1, d}, q), store("k", delta::Dtype::bf16, {1, T, 1, d}, k);
  store("v", delta::Dtype::bf16, {1, T, 1, d}, v), store("beta", delta::Dtype::bf16, {1, T, 1}, beta);
  store("g", delta::Dtype::fp32, {1, T, 1}, g);

  std::vector<double> S(d * d), o(T * d);
  kernel(T, d, q.data(), k.data(), v.data(), beta.data(), g.data(), 1 / std::sqrt(d), S.data(), o.data());
  dump.add("o", delta::Dtype::bf16, {1, T, 1, d}, o);
  dump.add("final_state", delta::Dtype::fp32, {1, 1, d, d}, S);

  const auto bytes = delta::write_safetensors(dump.tensors, {{"rule", "gated_delta"},
                                                             {"scale", "0.17677669529663687"},
                                                             {"state_layout", "vk"},
                                                             {"producer", "docs/snippets/wrong_kernel.cpp"},
                                                             {"note", "one mistake"}});
  std::ofstream(arguments[1], std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}
