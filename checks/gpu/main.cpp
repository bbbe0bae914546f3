// SPDX-License-Identifier: Apache-2.0
// The program `deltaref-gpu`: every kernel against the reference, on the device that is here.
#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "checks/gpu/checks.hpp"
#include "gpu/deltaref_gpu.hpp"

int main(int argc, char** argv) {
  using namespace delta;
  CLI::App app{"Every kernel against the reference: outputs, intermediates and laws, on the GPU that is here.",
               "deltaref-gpu"};
  gpu::Selection what;
  std::string out;
  app.add_option("--rule", what.rules, "only these rules");
  app.add_option("--family", what.families, "only these families of inputs");
  app.add_option("--kernel", what.versions, "only these versions, 1 to 5");
  app.add_option("--seed", what.seed, "seed of the inputs")->capture_default_str();
  app.add_option("--seconds", what.seconds, "start no case after this many seconds");
  app.add_flag("--quick", what.quick, "two families, two sizes: for compute-sanitizer");
  app.add_option("--out", out, "write the rows here as JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }

  char device[256];
  if (deltaref_gpu_device(nullptr, device, sizeof device) != DELTAREF_OK) {
    std::cerr << "deltaref-gpu: " << device << "; nothing was checked\n";
    return 2;
  }
  const auto start = std::chrono::steady_clock::now();
  std::map<Verdict, int> count;
  std::map<std::pair<std::string, std::string>, std::map<std::string, double>> worst;  // kernel, rule -> dtype
  auto rows = nlohmann::ordered_json::array();
  try {
    gpu::check_kernels(what, [&](const gpu::Row& r) {
      ++count[r.verdict];
      nlohmann::ordered_json row{{"kernel", r.kernel},
                                 {"rule", r.rule},
                                 {"family", r.family},
                                 {"shape", r.shape},
                                 {"dtype", r.dtype},
                                 {"what", r.what},
                                 {"ratio", std::isfinite(r.ratio) ? nlohmann::ordered_json(r.ratio) : nullptr},
                                 {"verdict", name(r.verdict)}};
      if (!r.reason.empty()) row["reason"] = r.reason;
      rows.push_back(row);
      if (r.verdict != Verdict::untrusted && r.verdict != Verdict::skipped) {
        double& w = worst[{r.rule, r.kernel}][r.dtype];
        w = std::max(w, r.ratio);
      }
      if (r.verdict == Verdict::failed)
        std::cout << "FAIL  " << r.kernel << ' ' << r.rule << ' ' << r.dtype << ' ' << r.family << ' ' << r.shape
                  << "  " << r.what << "  ratio " << r.ratio << "  " << r.reason << std::endl;
    });
  } catch (const std::exception& e) {
    std::cerr << "deltaref-gpu: " << e.what() << '\n';
    return 1;
  }
  std::cout << device << "\nworst ratio of error to expected error, outputs and intermediates\n"
            << "rule        kernel     bf16     fp16     fp32     fp64\n";
  for (const auto& [key, by_type] : worst) {
    std::printf("%-12s%-6s", key.first.c_str(), key.second.c_str());
    for (const char* type : {"bf16", "fp16", "fp32", "fp64"}) {
      const auto w = by_type.find(type);
      w == by_type.end() ? std::printf("         ") : std::printf("%9.2f", w->second);
    }
    std::printf("\n");
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const auto& [verdict, n] : count) std::cout << n << ' ' << name(verdict) << "  ";
  std::printf("(%.1f s)\n", seconds);
  if (!out.empty()) std::ofstream(out) << rows.dump(1) << '\n';
  return count[Verdict::failed] == 0 && count[Verdict::passed] > 0 ? 0 : 1;
}
