// SPDX-License-Identifier: Apache-2.0
// Times the forms in double on all cores, from the tensors of a problem to its outputs, beside PyTorch in the same run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "checks/core/families.hpp"
#include "checks/core/measure.hpp"
#include "checks/core/parallel_for.hpp"

namespace delta {
namespace {

double median_seconds(int repeats, const auto& f) {
  f();
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::nth_element(seconds, seconds.begin() + repeats / 2);
  return seconds[repeats / 2];
}

/// Every head of a problem through one form, heads shared out over the cores.
Result<double> compute_parallel(const Rule& rule, const Form<double>& form, Index C, const Problem<double>& p) {
  Result<double> out(p.shape.HV);
  parallel_for(p.shape.HV, cores(),
               [&](Index j) { out[j] = form.run(stream<double>(rule.info, rule.over<double>(), p, 0, j), C); });
  return out;
}

}  // namespace
}  // namespace delta

int main(int argc, char** argv) {
  using namespace delta;
  const int repeats = argc > 1 ? std::stoi(argv[1]) : 5;
  const Shape shape{.T = 4096, .H = 4, .HV = 4, .d_k = 128, .d_v = 128, .offsets = {}};
  const Rule& rule = *find_rule("gated_delta");
  const Problem<double> p = draw(rule.info, *find_family("gate_half"), shape, 1);
  std::printf("{\"T\": %td, \"H\": %td, \"d\": %td, \"threads\": %d, \"seconds\": {", shape.T, shape.H, shape.d_k,
              cores());
  const char* separator = "";
  for (const Form<double>& form : kForms<double>) {
    if (form.id == "parallel" || form.id == "scan") continue;  // quadratic in T, cubic in d: not for long sequences
    const double seconds = median_seconds(repeats, [&] { compute_parallel(rule, form, 64, p); });
    std::printf("%s\"%s\": %.5f", std::exchange(separator, ", "), std::string(form.id).c_str(), seconds);
  }
  std::printf("}}\n");
}
