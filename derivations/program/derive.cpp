// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "derivations/core/runs.hpp"
#include "options.hpp"

namespace delta {
namespace {

using Json = nlohmann::ordered_json;

/// A derivation by its name, or those that claim a formula by its id.
std::vector<const Entry*> find(const std::string& name) {
  std::string all;
  for (const Entry& e : derivations()) {
    if (e.name == name) return {&e};
    all += (all.empty() ? "" : ", ") + std::string(e.name);
  }
  const bool formula = coverage_table().find("\n" + name + ' ') != std::string_view::npos;
  std::vector<const Entry*> claiming;
  for (const Entry& e : derivations())
    if (formula && e.source.find('"' + name + '"') != e.source.npos) claiming.push_back(&e);
  if (claiming.empty())
    throw DeriveUsage("unknown derivation '" + name +
                      "'; expected the id of a formula, as F84, or one of " + all);
  return claiming;
}

std::map<std::string, Index> parsed(const std::vector<std::string>& sizes) {
  std::map<std::string, Index> out;
  for (const std::string& s : sizes) {
    const std::size_t eq = s.find('=');
    Index n = 0;
    const char *digits = s.c_str() + (eq == s.npos ? s.size() : eq + 1),
               *end = s.c_str() + s.size();
    const auto [at, error] = std::from_chars(digits, end, n);
    if (error != std::errc() || at != end || n < 1 || n > 512)
      throw DeriveUsage("--size expects NAME=N with N from 1 to 512, as in C=8; got '" + s + "'");
    out[s.substr(0, eq)] = n;
  }
  return out;
}

/// Refuses a size that the derivation does not have, or that is too small for it, before anything is printed.
void require_sizes(const Entry& entry, const Setup& setup) {
  Record record;
  Derivation<Rational> d(setup, record);
  entry.over_rationals(d);
  for (const auto& [name, n] : setup.sizes) {
    std::string known;
    bool found = false;
    for (const auto& [own, size] : record.sizes) {
      found = found || own == name;
      known += (known.empty() ? "" : ", ") + own;
    }
    if (!found)
      throw DeriveUsage("--size " + name + ": " + std::string(entry.name) +
                        " has no such size; it has " + (known.empty() ? "none" : known));
  }
}

/// The chance that a false identity of this degree holds at a random point of the field.
double chance(double degree) { return degree / static_cast<double>(GF61::p); }

void summarise(std::ostream& out, const Run& r) {
  std::string sizes;
  for (const auto& [name, n] : r.record.sizes)
    sizes += (sizes.empty() ? "" : ", ") + name + " = " + std::to_string(n);
  double degree = 0;
  int failed = 0;
  for (const Claim& c : r.record.claims) degree = std::max(degree, c.degree), failed += !c.holds;
  out << "over " << r.field << (sizes.empty() ? "" : "  (" + sizes + ")") << ": "
      << r.record.claims.size() - failed << " claims hold"
      << (failed ? ", " + std::to_string(failed) + " FAIL" : "");
  if (degree > 0)
    out << ";\n    a false identity would pass with probability at most " << text(degree)
        << " / (2^61 - 1) = " << text(chance(degree));
  out << '\n';
}

/// What was claimed over the rationals and not over the field, and why that is enough.
void say_what_needs_one_scalar(std::ostream& out, const Entry& entry,
                               const std::vector<Run>& runs) {
  if (entry.over_field && runs.size() < 2) return;  // the command line chose one
  std::map<std::string_view, int> alone;
  for (const Claim& c : runs[0].record.claims) {
    const auto same = [&](const Claim& other) {
      return other.line == c.line && other.id == c.id;
    };
    const bool twice = runs.size() > 1 && std::ranges::any_of(runs[1].record.claims, same);
    if (!twice && !why_one_scalar(c.kind).empty()) ++alone[name(c.kind)];
  }
  if (alone.empty()) return;
  out << "over one scalar, which is enough for them:";
  const char* separator = " ";
  for (Kind kind : {Kind::INEQ, Kind::NUM, Kind::CALC, Kind::CNT, Kind::SHAPE, Kind::Q})
    if (const auto n = alone.find(name(kind)); n != alone.end()) {
      out << separator << n->second << ' ' << name(kind) << " (" << why_one_scalar(kind) << ")";
      separator = ",\n    ";
    }
  out << '\n';
}

Json to_json(const Entry& entry, const std::vector<Run>& runs) {
  Json claims = Json::array();
  for (const Run& r : runs)
    for (const Claim& c : r.record.claims) {
      auto known = std::ranges::find_if(claims, [&](const Json& j) {
        return j["id"] == c.id && j["statement"] == c.statement && j["line"] == c.line;
      });
      if (known == claims.end()) {
        claims.push_back({{"id", c.id},
                          {"kind", name(c.kind)},
                          {"statement", c.statement},
                          {"scalars", Json::array()},
                          {"verdict", "holds"},
                          {"probability", 0.0},
                          {"line", c.line}});
        known = claims.end() - 1;
      }
      (*known)["scalars"].push_back(r.scalar);
      if (!c.holds) (*known)["verdict"] = "fails";
      if (c.degree > 0) (*known)["probability"] = chance(c.degree);
      if (!c.detail.empty() && !known->contains("detail")) (*known)["detail"] = c.detail;
    }
  return {{"name", entry.name}, {"title", entry.title()}, {"claims", claims}};
}

int walk(const Entry& entry, const DeriveOptions& o, const Setup& setup, std::ostream& out) {
  const Style style{.colour = !o.markdown && isatty(1),
                    .markdown = o.markdown,
                    .code = o.code || o.markdown,
                    .step = o.step};
  Transcript t(entry, out, style);
  const bool field = setup.scalar == "gf61" && entry.over_field;
  if (field) {
    Derivation<Generic> d(setup, t);
    entry.over_field(d);
  } else {
    const Setup telling = telling_seed(entry, setup);
    Derivation<Rational> d(telling, t);
    entry.over_rationals(d);
  }
  t.finish();
  out << '\n';
  std::vector<Run> runs{{field ? "gf61" : "rational", field ? "GF(2^61 - 1)" : "the rationals",
                         static_cast<const Record&>(t)}};
  Setup other = setup;
  other.scalar = "gf61";  // what was walked is not run again
  if (!field && entry.over_field && setup.scalar.empty())
    runs.push_back(runs_of(entry, other).front());
  bool good = true;
  for (const Run& r : runs) {
    summarise(out, r);
    good = good && r.record.all_hold();
  }
  say_what_needs_one_scalar(out, entry, runs);
  return good ? 0 : 1;
}

/// A page for each derivation, and one that lists them.
int write_pages(const DeriveOptions& o, const Setup& setup) {
  namespace fs = std::filesystem;
  std::error_code failed;
  fs::create_directories(o.pages, failed);
  DeriveOptions page = o;
  page.markdown = true;
  std::ofstream list(fs::path(o.pages) / "derivations.md");
  if (!list)
    throw DeriveUsage("--pages: cannot write into '" + o.pages +
                      "'; expected a folder that can be written to");
  list << "# Derivations {#derivations}\n\nEach is a program, printed here with what it computed "
          "and checked.\n\n";
  int status = 0;
  for (const Entry& e : derivations()) {
    std::ofstream file(fs::path(o.pages) / ("derivation_" + std::string(e.name) + ".md"));
    status |= walk(e, page, setup, file);
    list << "- @subpage derivation_" << e.name << '\n';
  }
  return status;
}

}  // namespace

int derive(const DeriveOptions& o) {
  Setup setup = o.setup;
  setup.sizes = parsed(o.sizes);
  if (!setup.scalar.empty() && setup.scalar != "rational" && setup.scalar != "gf61")
    throw DeriveUsage("unknown scalar '" + setup.scalar + "'; expected rational or gf61");
  std::vector<const Entry*> chosen;
  for (const std::string& n : o.names)
    for (const Entry* e : find(n))
      if (std::ranges::find(chosen, e) == chosen.end()) chosen.push_back(e);
  if (chosen.empty())
    for (const Entry& e : derivations()) chosen.push_back(&e);

  if (!setup.sizes.empty())
    for (const Entry* e : chosen) require_sizes(*e, setup);
  if (!o.pages.empty()) return write_pages(o, setup);
  if (o.json) {
    Json all = Json::array();
    bool good = true;
    for (const Entry* e : chosen) {
      const std::vector<Run> runs = runs_of(*e, setup);
      for (const Run& r : runs) good = good && r.record.all_hold();
      all.push_back(to_json(*e, runs));
    }
    std::cout << Json{{"derivations", all}}.dump(1) << '\n';
    return good ? 0 : 1;
  }
  if (o.names.empty() && !o.all) {
    for (const Entry* e : chosen)
      std::cout << e->name << std::string(22 - e->name.size(), ' ') << e->title() << '\n';
    return 0;
  }
  int status = 0;
  if (o.all) {
    for (const Entry* e : chosen) {
      const auto start = std::chrono::steady_clock::now();
      const std::vector<Run> runs = runs_of(*e, setup);
      std::size_t claims = 0;
      bool good = true;
      for (const Run& r : runs)
        claims += r.record.claims.size(), good = good && r.record.all_hold();
      std::printf(
          "%s  %-22s %3zu claims over %zu scalar%s  %5.2f s\n", good ? "holds" : "FAILS",
          std::string(e->name).c_str(), claims, runs.size(), runs.size() == 1 ? " " : "s",
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      for (const Run& r : runs)
        for (const Claim& c : r.record.claims)
          if (!c.holds)
            std::printf("       %s %s over %s, line %u: %s\n", c.id.c_str(), c.statement.c_str(),
                        std::string(r.field).c_str(), c.line, c.detail.c_str());
      status |= good ? 0 : 1;
    }
    return status;
  }
  if (chosen.size() > 1 && !o.markdown) {
    std::cout << "in this order: ";
    for (const Entry* e : chosen) std::cout << (e == chosen[0] ? "" : ", ") << e->name;
    std::cout << "\n\n";
  }
  for (const Entry* e : chosen) status |= walk(*e, o, setup, std::cout);
  return status;
}

}  // namespace delta
