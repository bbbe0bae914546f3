// SPDX-License-Identifier: Apache-2.0
// docs_pages ROOT OUT: the pages of the site that are made from the code. A page per rule, from what its file says of
// itself; and the index of formulas: docs/formulas.md, with every place in the sources that names a label.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "reference/core/rule.hpp"
#include "rules.hpp"

namespace fs = std::filesystem;
using delta::Extent, delta::Forget, delta::Input, delta::RuleInfo, delta::Strength;

namespace {

std::string read(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// ---- rules ----------------------------------------------------------------------------------------------------------

std::string inputs_table(const RuleInfo& r) {
  std::string s =
      "| input | shape | meaning |\n|---|---|---|\n"
      "| `q`, `k` | [B, T, H, d_k] | query and key |\n"
      "| `v` | [B, T, HV, d_v] | value |\n";
  if (r.strength == Strength::per_head) s += "| `beta` | [B, T, HV] | strength of the correction |\n";
  if (r.strength == Strength::per_value)
    s += "| `beta` | [B, T, HV, d_v] | strength of the correction, per value channel |\n";
  if (r.forget == Forget::per_head) s += "| `alpha`, or `g` = ln alpha | [B, T, HV] | decay of the state |\n";
  if (r.forget == Forget::per_channel)
    s += "| `alpha`, or `g` = ln alpha | [B, T, HV, d_k] | decay per key channel |\n";
  if (r.lambda) s += "| `lambda` | [B, T, HV] | share of the query in the read key |\n";
  for (const Input& i : r.inputs) {
    const std::string width = i.extent == Extent::d_k ? ", d_k" : i.extent == Extent::d_v ? ", d_v" : "";
    s += "| `" + std::string(i.name) + "` | [B, T, HV" + (i.more ? ", n_h - 1" : "") + width + "] | " +
         std::string(i.meaning) + " |\n";
  }
  return s;
}

std::string rule_page(const RuleInfo& r) {
  const std::string id(r.id);
  std::string aliases;
  for (const std::string_view a : r.aliases)
    aliases += (aliases.empty() ? " Also called `" : ", `") + std::string(a) + "`";
  return "# " + std::string(r.title) + " {#rule_" + id + "}\n\nIdentifier `" + id + "`." + aliases +
         (aliases.empty() ? "" : ".") + "\n\n\\copybrief delta::" + id + "\n\n\\copydetails delta::" + id +
         "\n\n## Inputs\n\n" + inputs_table(r) + "\nThe letters are those of \\ref symbols.\n\n## The file\n\n" +
         "\\include{lineno} reference/rules/" + id + ".hpp\n\n## Check it\n\n```sh\n./run check --rule " + id +
         "\n```\n";
}

// ---- formulas -------------------------------------------------------------------------------------------------------

/// The name Doxygen gives to the page with the source of a file, "chunkwise_8hpp_source.html".
std::string source_page(const fs::path& file, bool unique_name) {
  std::string name;
  for (const char c : unique_name ? file.filename().string() : file.string())
    name += c == '_' ? "__" : c == '.' ? "_8" : c == '/' ? "_2" : std::string(1, c);
  return name + "_source.html";
}

struct Place {
  fs::path file;
  int line;
};

/// Where each label stands: \formula{F84}, the label of a rule, a claim of a derivation, or the bare label in a
/// comment.
std::map<std::string, std::vector<Place>> places(const fs::path& root, const std::set<std::string>& labels) {
  static const std::regex label(R"(\\formula\{([^}]+)\}|\b(F[0-9]{2,3}|[CD][0-9]*-[a-z0-9-]+)\b)");
  std::map<std::string, std::vector<Place>> all;
  for (const char* folder : {"reference", "derivations", "checks", "gpu"}) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const fs::path file = fs::relative(entry.path(), root);
      if (!std::set<fs::path>{".hpp", ".cpp", ".inl", ".cu", ".cuh"}.contains(file.extension())) continue;
      if (file.extension() == ".cpp" && *file.begin() == "checks") continue;  // the site has no page for these
      std::ifstream in(entry.path());
      int n = 0;
      for (std::string line; ++n, std::getline(in, line);)
        for (std::sregex_iterator m(line.begin(), line.end(), label), end; m != end; ++m) {
          const std::string id = (*m)[1].matched ? (*m)[1] : (*m)[2];
          if (!labels.contains(id)) {
            if ((*m)[1].matched)
              throw std::runtime_error(file.string() + ":" + std::to_string(n) + ": " + id +
                                       " is not in docs/formulas.md");
            continue;
          }
          std::vector<Place>& here = all[id];
          if (here.empty() || here.back().file != file) here.push_back({file, n});  // the first line of each file
        }
    }
  }
  for (auto& [id, here] : all) std::ranges::sort(here, {}, &Place::file);
  return all;
}

std::string formula_index(const fs::path& root) {
  static const std::regex row(R"(^\| (\S+) \| (.*) \|$)");
  const std::string text = read(root / "docs/formulas.md");
  std::vector<std::string> lines;
  std::set<std::string> labels;
  std::istringstream in(text);
  std::smatch m;
  for (std::string line; std::getline(in, line); lines.push_back(line))
    if (std::regex_match(line, m, row) && m[1] != "id") labels.insert(m[1]);

  std::map<std::string, int> names;  // how many source files bear a name
  for (const char* folder : {"reference", "derivations", "checks", "gpu"})
    if (fs::exists(root / folder))
      for (const auto& e : fs::recursive_directory_iterator(root / folder)) ++names[e.path().filename().string()];

  const auto where = places(root, labels);
  std::string out;
  for (const std::string& line : lines) {
    if (line == "| id | statement |") {
      out += "| id | statement | where |\n";
    } else if (line == "|---|---|") {
      out += "|---|---|---|\n";
    } else if (std::regex_match(line, m, row)) {
      const std::string id = m[1];
      std::string links;
      if (const auto here = where.find(id); here != where.end())
        for (const Place& p : here->second) {
          char anchor[16];
          std::snprintf(anchor, sizeof anchor, "#l%05d", p.line);
          links += std::string(links.empty() ? "" : "<br>") + "<a href=\"" +
                   source_page(p.file, names[p.file.filename().string()] == 1) + anchor + "\">" + p.file.string() +
                   ":" + std::to_string(p.line) + "</a>";
        }
      out += "| \\anchor formula_" + id + " " + id + " | " + m[2].str() + " | " + links + " |\n";
    } else {
      out += line + "\n";
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: docs_pages ROOT OUT\n", 2;
  const fs::path root = argv[1], out = argv[2];
  fs::create_directories(out);
  std::string list = "# Rules {#rules}\n\n| rule | recurrence | source |\n|---|---|---|\n";
  std::string pages;
  for (const RuleInfo* r : kRules) {
    std::ofstream(out / ("rule_" + std::string(r->id) + ".md")) << rule_page(*r);
    list += "| \\subpage rule_" + std::string(r->id) + " \"" + std::string(r->title) + "\" | $" +
            std::string(r->formula) + "$ | " + std::string(r->source) + " |\n";
  }
  std::ofstream(out / "rules.md") << list;
  try {
    std::ofstream(out / "formulas.md") << formula_index(root);
  } catch (const std::runtime_error& e) {
    return std::cerr << "docs_pages: " << e.what() << '\n', 1;
  }
}
