// SPDX-License-Identifier: Apache-2.0
// The program `deltaref-gpu`: every kernel against the reference, on the device that is here.
#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "checks/core/families.hpp"
#include "checks/gpu/checks.hpp"
#include "checks/program/whole_number.hpp"
#include "gpu/deltaref_gpu.hpp"

int main(int argc, char** argv) {
  using namespace delta;
  CLI::App app{"Every kernel against the reference: outputs, intermediates and laws, on the GPU that is here.",
               "deltaref-gpu"};
  gpu::Selection what;
  std::string out;
  std::vector<std::string> rule_names, family_names;
  for (int rule = 0; rule <= DELTAREF_KDA; ++rule) rule_names.emplace_back(deltaref_gpu_rule_name(rule));
  for (const Family& f : families()) family_names.emplace_back(f.name);
  app.add_option("--rule", what.rules, "only these rules")->check(CLI::IsMember(rule_names));
  app.add_option("--family", what.families, "only these families of inputs")->check(CLI::IsMember(family_names));
  app.add_option("--kernel", what.versions, "only these versions")->check(CLI::Range(1, int{DELTAREF_NEWEST}));
  app.add_option("--seed", what.seed, "seed of the inputs")->check(whole_number)->capture_default_str();
  app.add_option("--seconds", what.seconds, "start no case after this many seconds");
  app.add_flag("--quick", what.quick, "one family, two sizes: for compute-sanitizer");
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
  using ByKernel =
      std::map<std::pair<std::string, std::string>, std::map<std::string, double>>;  // rule, kernel -> dtype
  ByKernel worst, furthest;
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
      for (const auto& [figure, x] : r.figures) row[figure] = std::isfinite(x) ? nlohmann::ordered_json(x) : nullptr;
      rows.push_back(row);
      if (r.verdict != Verdict::untrusted && r.verdict != Verdict::skipped) {
        const auto raise = [&](ByKernel& table, double x) {
          double& most = table[{r.rule, r.kernel}][r.dtype];
          most = std::max(most, x);
        };
        raise(worst, r.ratio);
        if (const auto x = r.figures.find("kernel_to_schedule"); x != r.figures.end()) raise(furthest, x->second);
      }
      if (r.verdict == Verdict::failed)
        std::cout << "FAIL  " << r.kernel << ' ' << r.rule << ' ' << r.dtype << ' ' << r.family << ' ' << r.shape
                  << "  " << r.what << "  ratio " << r.ratio << "  " << r.reason << std::endl;
    });
  } catch (const std::exception& e) {
    std::cerr << "deltaref-gpu: " << e.what() << '\n';
    return 1;
  }
  const auto print = [](const char* title, const ByKernel& table) {
    std::printf("%s\nrule        kernel     bf16     fp16     fp32     fp64\n", title);
    for (const auto& [key, by_type] : table) {
      std::printf("%-12s%-6s", key.first.c_str(), key.second.c_str());
      for (const char* type : {"bf16", "fp16", "fp32", "fp64"}) {
        const auto w = by_type.find(type);
        w == by_type.end() ? std::printf("         ") : std::printf("%9.2f", w->second);
      }
      std::printf("\n");
    }
  };
  std::printf("%s\n", device);
  print("worst ratio of error to expected error, outputs and intermediates", worst);
  if (!furthest.empty()) print("farthest from the schedule, chunk by chunk, where the exact result is at 1", furthest);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const auto& [verdict, n] : count) std::printf("%d %s  ", n, std::string(name(verdict)).c_str());
  std::printf("(%.1f s)\n", seconds);
  if (!out.empty()) std::ofstream(out) << rows.dump(1) << '\n';
  return count[Verdict::failed] == 0 && count[Verdict::passed] > 0 ? 0 : 1;
}
