// SPDX-License-Identifier: Apache-2.0
#include "gpu_page.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string number(double x, const char* format) {
  char s[40];
  std::snprintf(s, sizeof s, format, x);
  return s;
}

/// Three significant digits, as a reader compares them.
std::string ms(double x) { return number(x, x < 1 ? "%.3f" : x < 10 ? "%.2f" : x < 100 ? "%.1f" : "%.0f"); }

/// "not finite" where a peer's result was not, nothing where there is none.
std::string error(const Json& x) {
  return x.is_number() ? number(x.get<double>(), "%.2e") : x.is_string() ? x.get<std::string>() : "";
}

/// The hash that `./run gpu --hash` prints; empty if it cannot be had here.
std::string hash_of_sources(const fs::path& root) {
  std::array<char, 65> out{};
  FILE* const pipe = popen(("'" + (root / "gpu/hash.sh").string() + "' 2>/dev/null").c_str(), "r");
  const bool read = pipe && std::fread(out.data(), 1, 64, pipe) == 64;
  if (pipe) pclose(pipe);
  return read ? out.data() : "";
}

std::string row(const std::vector<std::string>& cells) {
  std::string s = "|";
  for (const std::string& c : cells) s += " " + c + " |";
  return s + "\n";
}

/// Column heads; a colon puts numbers to the right.
std::string heads(const std::vector<std::string>& names, std::size_t words) {
  std::string s = row(names) + "|";
  for (std::size_t i = 0; i < names.size(); ++i) s += i < words ? "---|" : "---:|";
  return s + "\n";
}

/// The bytes that a pass cannot do without: q, k, v, o once in their type, gates and strength in fp32; states when
/// decoding.
double least_bytes(const Json& t) {
  const double width = t.at("dtype") == "fp32" ? 4 : 2, lanes = t.at("B").get<double>() * t.at("T").get<double>();
  const double H = t.at("H"), HV = t.at("HV"), d_k = t.at("d_k"), d_v = t.at("d_v");
  const double gates = t.at("op") == "kda" ? d_k : 1;  // one a channel, or one a head
  const double tokens = lanes * (width * (2 * H * d_k + 2 * HV * d_v) + 4 * HV * (gates + 1));
  const double state = t.at("pass") == "decode" ? 2 * 4 * t.at("B").get<double>() * HV * d_k * d_v : 0;
  return tokens + state;
}

/// Times of one pass: a row for each rule and shape, a column for each version and peer.
std::string timings(const Json& evidence, const std::string& pass, double copy_tbps) {
  using Key = std::tuple<std::string, Json>;
  std::vector<Key> order;
  std::map<Key, std::map<std::string, double>> times;
  std::map<Key, double> share;
  std::set<std::string> columns;
  for (const Json& t : evidence.at("timings")) {
    if (t.at("pass") != pass) continue;
    const Key key{t.at("op"), Json{t.at("B"), t.at("T"), t.at("H"), t.at("d_k"), t.at("dtype")}};
    if (!times.contains(key)) order.push_back(key);
    auto put = [&](const std::string& who, double value) { columns.insert(who), times[key][who] = value; };
    put(t.at("kernel"), t.at("ms"));
    for (const auto& [peer, value] : t.at("peers").items()) put("~" + peer, value);  // peers come last
    share[key] = std::max(share[key], least_bytes(t) / (t.at("ms").get<double>() * 1e-3) / (copy_tbps * 1e12));
  }
  if (order.empty()) return "";
  std::vector<std::string> names{"rule", "B", "T", "H", "d", "type"};
  for (const std::string& c : columns) names.push_back(c.starts_with("~") ? (c == "~fla" ? "FLA" : c.substr(1)) : c);
  for (std::string& n : names) std::ranges::replace(n, '_', ' ');
  const bool with_fla = columns.contains("~fla"), with_share = pass != "host";
  if (with_fla) names.push_back("FLA / ours");
  if (with_share) names.push_back("share of the copy rate");
  std::string s = heads(names, 1);
  for (const Key& key : order) {
    const auto& [op, shape] = key;
    std::vector<std::string> cells{"`" + op + "`"};
    for (std::size_t i = 0; i < 4; ++i) cells.push_back(shape[i].dump());
    cells.push_back(shape[4]);
    double best = 0;
    for (const std::string& c : columns) {
      const auto found = times[key].find(c);
      cells.push_back(found == times[key].end() ? "" : ms(found->second));
      if (found != times[key].end() && !c.starts_with("~"))
        best = best > 0 ? std::min(best, found->second) : found->second;
    }
    const auto fla = times[key].find("~fla");
    if (with_fla) cells.push_back(fla == times[key].end() ? "" : number(fla->second / best, "%.2f"));
    if (with_share) cells.push_back(number(100 * share[key], "%.0f %%"));
    s += row(cells);
  }
  return s + "\n";
}

/// One row a rule, family of gates, output and kernel; older evidence does not name the kernel.
std::string accuracy(const Json& evidence) {
  std::string s = heads({"rule", "gates", "output", "kernel", "ours", "FLA", "ours / FLA"}, 4);
  for (const Json& a : evidence.at("accuracy")) {
    const Json &ours = a.at("ours"), &fla = a.at("fla");
    const bool both = ours.is_number() && fla.is_number() && fla.get<double>() > 0;
    s += row({"`" + a.at("op").get<std::string>() + "`", a.at("gates"), "`" + a.at("output").get<std::string>() + "`",
              a.value("kernel", ""), error(ours), error(fla),
              both ? number(ours.get<double>() / fla.get<double>(), "%.2f") : ""});
  }
  return s + "\n";
}

/// How each version did on each rule: cases by verdict, the worst ratio and where.
std::string checks(const Json& evidence) {
  struct Count {
    std::map<std::string, int> of;
    double worst = 0;
    std::string at;
  };
  std::map<std::pair<std::string, std::string>, Count> all;
  for (const Json& c : evidence.at("checks")) {
    Count& n = all[{c.at("kernel"), c.at("rule")}];
    ++n.of[c.at("verdict")];
    if (c.at("verdict") != "passed" && c.at("verdict") != "marginal") continue;
    if (const double r = c.at("ratio"); r > n.worst)
      n.worst = r, n.at = c.at("family").get<std::string>() + ", " + c.at("dtype").get<std::string>();
  }
  std::string s =
      "| kernel | rule | passed | marginal | failed | untrusted | skipped | worst ratio | on |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|---|\n";
  for (const auto& [key, n] : all) {
    std::vector<std::string> cells{key.first, "`" + key.second + "`"};
    for (const char* verdict : {"passed", "marginal", "failed", "untrusted", "skipped"})
      cells.push_back(n.of.contains(verdict) ? std::to_string(n.of.at(verdict)) : "");
    cells.push_back(n.worst > 0 ? number(n.worst, "%.2f") : ""), cells.push_back(n.at.empty() ? "" : "`" + n.at + "`");
    s += row(cells);
  }
  s += "\n";
  const Json not_judged = evidence.value("not_judged", Json::object());
  for (const auto& [reason, count] : not_judged.items())
    s += "- " + count.dump() + " comparisons not judged: " + reason + "\n";
  return s + "\n";
}

std::string device_section(const Json& e, const std::string& hash) {
  const Json& ceilings = e.at("ceilings");
  const double copy = ceilings.at("copy_tbps"), flops = ceilings.at("bf16_tflops");
  std::string s = "## " + e.at("device").get<std::string>() + "\n\n";
  if (hash.empty())
    s += "\\warning The sources of the kernels could not be hashed here: whether these figures are theirs is not "
         "known.\n\n";
  else if (hash != e.at("sources_sha256"))
    s += "\\warning These figures were measured on other sources of the kernels than the ones here. `./run gpu` on "
         "such a "
         "device measures again.\n\n";
  else
    s += "The sources of the kernels are those that were measured: their hash agrees.\n\n";
  s += "| | |\n|---|---|\n" + row({"driver", e.at("driver")}) +
       row({"commit", "`" + e.at("commit").get<std::string>() + "`"}) +
       row({"sources", "`" + e.at("sources_sha256").get<std::string>().substr(0, 16) + "`"}) +
       row({"copy, device to device", number(copy, "%.2f") + " TB/s"}) +
       row({"matrix product, bf16", number(flops, "%.0f") + " TFLOP/s"});
  const Json versions = e.value("versions", Json::object());
  for (const auto& [what, version] : versions.items()) s += row({what, version});
  for (const auto& [tool, verdict] : e.at("sanitizer").items()) s += row({"`compute-sanitizer` " + tool, verdict});
  s += "\n";
  if (const std::string note = e.value("note", ""); !note.empty()) s += note + "\n\n";
  constexpr std::pair<const char*, const char*> passes[] = {
      {"forward", "Forward"},
      {"forward_backward", "Forward and backward"},
      {"decode", "Decoding, one token"},
      {"few", "Few heads of a long sequence"},
      {"long", "Two heads along a long sequence, walked whole"},
      {"host", "A short call from the host, until its result is there"}};
  for (const auto& [pass, title] : passes)
    if (const std::string t = timings(e, pass, copy); !t.empty())
      s += std::string("### ") + title + "\n\nMilliseconds." +
           (pass == std::string("host") ? ""
                                        : " The share of the copy rate counts the bytes that the pass cannot do "
                                          "without, for the fastest version.") +
           "\n\n" + t;
  s += "### Accuracy\n\nThe error of each output of the newest kernels against the reference in double, beside "
       "FLA's on the same inputs.\n\n" +
       accuracy(e);
  return s + "### Checks\n\n" + checks(e);
}

}  // namespace

std::string gpu_page(const fs::path& root) {
  std::string page =
      "# Kernels on a GPU {#gpu_figures}\n\n"
      "Made from the evidence that `./run gpu` leaves behind in `gpu/evidence`; no table here was written by hand. A "
      "figure "
      "is recorded only from a run in which no check failed. What each version changed and what that taught is told in "
      "`gpu/NOTES.md`, and \\ref hopper \"how the newest ones work\" on a page of its own.\n\n";
  std::vector<fs::path> files;
  if (const fs::path folder = root / "gpu/evidence"; fs::exists(folder))
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
  if (files.empty()) return page + "No device has been measured yet.\n";
  std::ranges::sort(files);
  const std::string hash = hash_of_sources(root);
  for (const fs::path& file : files) try {
      std::ifstream in(file);
      page += device_section(Json::parse(in), hash);
    } catch (const Json::exception& e) {
      throw std::runtime_error(file.filename().string() + " is no evidence: " + e.what());
    }
  return page;
}
