// SPDX-License-Identifier: Apache-2.0
// docs_pages ROOT OUT: the pages of the site that are made from the code. A page per rule, from what its file says of
// itself; the index of formulas: docs/formulas.md, with every place in the sources that names a label; and the figures
// measured on GPUs.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gpu_page.hpp"
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
  constexpr const char* absent[] = {"0", "1", "`k`"};  // of each delta::Neutral
  for (const Input& i : r.inputs) {
    const std::string width = i.extent == Extent::d_k ? ", d_k" : i.extent == Extent::d_v ? ", d_v" : "";
    s += "| `" + std::string(i.name) + "` | [B, T, HV" + (i.more ? ", n_h - 1" : "") + width + "] | " +
         std::string(i.meaning) + "; if absent " + absent[static_cast<int>(i.neutral)] + " |\n";
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

/// The rules that README.md lists are listed as their files say; a new rule need not be among them.
void check_readme(const fs::path& root) {
  std::vector<std::string> rows;
  for (const RuleInfo* r : kRules)
    rows.push_back("| [`" + std::string(r->id) + "`](reference/rules/" + std::string(r->id) + ".hpp) | " +
                   std::string(r->title) + " | $" + std::string(r->formula) + "$ |");
  std::istringstream in(read(root / "README.md"));
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("| [`") && std::ranges::find(rows, line) == rows.end()) {
      std::string all;
      for (const std::string& row : rows) all += row + "\n";
      throw std::runtime_error("README.md: no rule says this of itself:\n" + line + "\nThe rules say:\n" + all);
    }
}

// ---- formulas -------------------------------------------------------------------------------------------------------

/// The sources that the site shows, relative to the root, in order.
std::vector<fs::path> sources(const fs::path& root) {
  static const std::set<fs::path> kinds{".hpp", ".cpp", ".inl", ".cu", ".cuh"};
  std::vector<fs::path> all;
  for (const fs::path folder : {"reference", "derivations", "checks", "gpu"}) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const fs::path file = fs::relative(entry.path(), root);
      if (kinds.contains(file.extension()) && !(folder == "checks" && file.extension() == ".cpp")) all.push_back(file);
    }
  }
  std::ranges::sort(all);
  return all;
}

/// The page that Doxygen makes of a source: named after the file; where files share their name, after the part of the
/// path in which they differ.
std::map<fs::path, std::string> source_pages(const std::vector<fs::path>& files) {
  std::map<fs::path, std::vector<fs::path>> namesakes;
  for (const fs::path& f : files) namesakes[f.filename()].push_back(f);
  std::map<fs::path, std::string> pages;
  for (const auto& [filename, group] : namesakes) {
    std::ptrdiff_t shared = std::distance(group[0].begin(), group[0].end()) - 1;  // folders that all of them share
    for (const fs::path& f : group)
      shared = std::min(shared, std::distance(group[0].begin(), std::ranges::mismatch(group[0], f).in1));
    for (const fs::path& f : group) {
      fs::path name;
      for (auto part = std::next(f.begin(), shared); part != f.end(); ++part) name /= *part;
      for (const char c : name.string())
        pages[f] += c == '_' ? "__" : c == '.' ? "_8" : c == '/' ? "_2" : std::string(1, c);
      pages[f] += "_source.html";
    }
  }
  return pages;
}

/// For each label a link to one line of each file that names it: the line of code that computes or claims it, else the
/// documentation above a function, \formula{F84}. A file that implements a formula comes before one that mentions it.
std::map<std::string, std::string> places(const fs::path& root, const std::set<std::string>& labels) {
  static const std::regex label(R"re(\\formula\{([^}]+)\}|\b(F[0-9]{2,3}b?|C-[a-z0-9-]+)\b|"([ED][0-9]{1,2})")re");
  const std::vector<fs::path> files = sources(root);
  std::map<fs::path, std::string> pages = source_pages(files);
  struct Place {
    int line = 0;
    bool code = false, declared = false;
  };
  std::map<std::string, std::vector<std::pair<fs::path, Place>>> all;
  for (const fs::path& file : files) {
    std::map<std::string, Place> here;
    std::ifstream in(root / file);
    int n = 0;
    for (std::string line; ++n, std::getline(in, line);) {
      const std::size_t begin = line.find_first_not_of(' ');
      const bool code = begin != line.npos && line.compare(begin, 2, "//") != 0 &&
                        line.find(".label = ") == line.npos;  // a rule's name for itself computes nothing
      for (std::sregex_iterator m(line.begin(), line.end(), label), end; m != end; ++m) {
        const bool declared = (*m)[1].matched;
        const std::string id = (*m)[declared ? 1 : (*m)[2].matched ? 2 : 3];
        if (declared && !labels.contains(id))
          throw std::runtime_error(file.string() + ":" + std::to_string(n) + ": docs/formulas.md has no " + id);
        if (!labels.contains(id)) continue;
        Place& p = here[id];
        if (p.line == 0 || (code && !p.code)) p.line = n, p.code = code;
        p.declared = p.declared || declared;
      }
    }
    for (const auto& [id, place] : here) all[id].emplace_back(file, place);
  }
  std::map<std::string, std::string> links;
  for (auto& [id, where] : all) {
    const auto rank = [](const auto& x) {  // the library, then the derivations, then the kernels and the checks
      const std::string folder = x.first.begin()->string();
      return std::pair(!x.second.declared, folder == "reference" ? 0 : folder == "derivations" ? 1 : 2);
    };
    std::ranges::stable_sort(where, {}, rank);
    for (const auto& [file, place] : where) {
      std::ostringstream link;
      link << "<a href=\"" << pages[file] << "#l" << std::setfill('0') << std::setw(5) << place.line << "\">"
           << file.string() << ':' << place.line << "</a><br>";
      links[id] += link.str();
    }
  }
  return links;
}

/// docs/formulas.md, the formulas that the rules bring along, and where each of them stands.
std::string formula_index(const fs::path& root) {
  static const std::regex row(R"(\| (\S+) \| (.*) \|)");
  std::string text = read(root / "docs/formulas.md") + "\n## Rules\n\n| id | statement |\n|---|---|\n";
  for (const RuleInfo* r : kRules) {
    const std::string begin = "| " + std::string(r->label) + " | ";
    if (text.find(begin) == std::string::npos)
      text += begin + std::string(r->title) + ": $" + std::string(r->formula) + "$ |\n";
  }
  std::set<std::string> labels;
  for (std::sregex_iterator m(text.begin(), text.end(), row), end; m != end; ++m) labels.insert((*m)[1]);
  std::map<std::string, std::string> where = places(root, labels);

  std::string out, line;
  std::smatch m;
  for (std::istringstream in(text); std::getline(in, line);) {
    if (line == "| id | statement |")
      line += " where |";
    else if (line == "|---|---|")
      line += "---|";
    else if (std::regex_match(line, m, row))
      line = "| \\anchor formula_" + m[1].str() + " " + m[1].str() + " | " + m[2].str() + " | " + where[m[1]] + " |";
    out += line + "\n";
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: docs_pages ROOT OUT\n", 2;
  const fs::path root = argv[1], out = argv[2];
  fs::create_directories(out);
  std::string list = "# Rules {#rules}\n\n| rule | recurrence | source |\n|---|---|---|\n";
  for (const RuleInfo* r : kRules) {
    std::ofstream(out / ("rule_" + std::string(r->id) + ".md")) << rule_page(*r);
    list += "| \\subpage rule_" + std::string(r->id) + " \"" + std::string(r->title) + "\" | $" +
            std::string(r->formula) + "$ | " + std::string(r->source) + " |\n";
  }
  std::ofstream(out / "rules.md") << list;
  try {
    check_readme(root);
    std::ofstream(out / "formulas.md") << formula_index(root);
    std::ofstream(out / "gpu_figures.md") << gpu_page(root);
  } catch (const std::runtime_error& e) {
    return std::cerr << "docs_pages: " << e.what() << '\n', 1;
  }
}
