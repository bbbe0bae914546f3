// SPDX-License-Identifier: Apache-2.0
#include "checks/report/analysis_report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "checks/report/svg.hpp"

namespace delta {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostHeads = 8;

const std::vector<std::string> kHeads{"seq",         "head",   "1 - beta a", "norm",     "at t", "bound",
                                      "certificate", "growth", "found",      "(I+L)^-1", "cond", "chunk"};

std::string certificate_text(const HeadAnalysis& h) {
  if (!h.certificate.holds) return "fails at t " + std::to_string(h.certificate.fails_at);
  return h.every_vector ? "every q, k" : "these tokens";
}

/// The worst heads, one row each, as `kHeads` names them.
std::vector<std::vector<std::string>> rows(const Analysis& a) {
  std::vector<std::vector<std::string>> out;
  for (std::size_t i = 0; i < std::min(a.heads.size(), kMostHeads); ++i) {
    const HeadAnalysis& h = a.heads[i];
    out.push_back({std::to_string(h.sequence), std::to_string(h.head),
                   figure(h.least_factor, "%.3f") + ".." + figure(h.largest_factor, "%.3f"), figure(h.norm, "%.4f"),
                   std::to_string(h.norm_at), figure(h.certificate.largest, "%.4f"), certificate_text(h),
                   figure(h.growth, "%.2e"), figure(h.search, "%.4f"), figure(h.inverse.largest_entry),
                   figure(h.inverse.condition), std::to_string(h.chunk)});
  }
  return out;
}

/// What the columns are, one sentence each.
std::vector<std::pair<std::string, std::string>> legend(const Analysis& a) {
  std::vector<std::pair<std::string, std::string>> out{
      {"norm", "the largest norm of one token's transition; growth: of their product, what did happen"}};
  const auto shown = std::span(a.heads).first(std::min(a.heads.size(), kMostHeads));
  if (std::ranges::any_of(shown, &HeadAnalysis::every_vector))
    out.emplace_back("bound",
                     "the largest alpha G, which that norm cannot exceed for any q and k of these lengths; at most 1 "
                     "at every token, no sequence of them can enlarge the state");
  if (!std::ranges::all_of(shown, &HeadAnalysis::every_vector))
    out.emplace_back("these tokens",
                     "the rule reads along another vector than it writes and no bound for all vectors is known: the "
                     "bound is the norm itself, and where it is at most 1 these tokens cannot enlarge the state");
  out.emplace_back("found", "growth per token in the worst order of these tokens that a search found");
  out.emplace_back("(I+L)^-1", "the largest entry of a chunk's inverse; cond: the condition number of I + L");
  return out;
}

/// A course over n cells as at most 400 points, each the largest (or least) of those that it stands for.
Series course(const std::string& name, const std::vector<double>& y, bool least = false) {
  Series s{name, {}};
  const std::size_t n = y.size(), points = std::min<std::size_t>(n, 400);
  for (std::size_t i = 0; i < points; ++i) {
    const auto cells = std::span(y).subspan(i * n / points, (i + 1) * n / points - i * n / points);
    const double value = least ? std::ranges::min(cells) : std::ranges::max(cells);
    s.points.emplace_back(static_cast<double>(i) / static_cast<double>(points), value);
    s.points.emplace_back(static_cast<double>(i + 1) / static_cast<double>(points), value);
  }
  return s;
}

}  // namespace

std::string analysis_text(const Analysis& a, const Terminal& terminal) {
  if (a.heads.empty()) return terminal.field("stability", "there is no token: nothing to analyse");
  const auto shown = rows(a);
  std::string s =
      terminal.field("stability", std::to_string(shown.size()) + " of " + std::to_string(a.heads.size()) +
                                      " heads, the worst first; chunks of " + std::to_string(a.chunk_length));
  TextTable t{.columns = {}, .rows = shown, .keys = 2, .indent = 2};
  for (const std::string& head : kHeads) t.columns.push_back({head, head != "certificate"});
  s += t.text(terminal.width);
  for (const auto& [what, says] : legend(a)) s += terminal.field(what, says);
  return s;
}

Json analysis_json(const Analysis& a) {
  Json heads = Json::array();
  for (const HeadAnalysis& h : a.heads) {
    const Certificate& c = h.certificate;
    heads.push_back(
        {{"sequence", h.sequence},
         {"head", h.head},
         {"factor", {h.least_factor, h.largest_factor}},
         {"norm", {{"largest", h.norm}, {"t", h.norm_at}}},
         {"certificate",
          {{"holds", c.holds},
           {"every_vector", h.every_vector},
           {"fails_at", c.holds ? Json(nullptr) : Json(c.fails_at)},
           {"largest", c.largest},
           {"t", c.worst},
           {"product", c.product}}},
         {"growth", h.growth},
         {"found", h.search},
         {"inverse",
          {{"largest_entry", h.inverse.largest_entry}, {"condition", h.inverse.condition}, {"chunk", h.chunk}}}});
  }
  return {{"chunk_length", a.chunk_length}, {"micro_steps", a.micro_steps}, {"heads", heads}};
}

Html analysis_html(const Analysis& a, const std::string& id) {
  if (a.heads.empty()) return {};
  std::vector<Head> heads;
  for (const std::string& head : kHeads) heads.push_back({head, head == "certificate" ? "" : "n"});
  std::vector<Html> lines;
  for (const auto& row : rows(a)) {
    Html line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += kHeads[i] == "certificate" ? "td"_tag(text(row[i])) : "td"_tag("class", "n")(text(row[i]));
    lines.push_back(line);
  }
  Html says;
  for (const auto& [what, sentence] : legend(a)) says += "dt"_tag(text(what)) + "dd"_tag(text(sentence));

  const HeadAnalysis& worst = a.heads[0];
  const std::string of = "sequence " + std::to_string(worst.sequence) + ", head " + std::to_string(worst.head);
  const AnalysisSeries& s = a.series;
  const auto tokens = static_cast<Index>(s.norm.size()) / a.micro_steps;
  const Ticks token_ticks = cell_ticks(tokens, 8, true);
  std::vector<double> condition, entry;
  for (const InverseGrowth& g : s.inverse) condition.push_back(g.condition), entry.push_back(g.largest_entry);
  Html out = table("how the rule treats its own state, worst heads first", heads, lines) + "dl"_tag(says);
  out += draw(Plot{.caption = {id + "-norms", "Norm of each token's transition, " + of + ".",
                               "Above 1 a token can enlarge the state. The bound is alpha G of the certificate."},
                   .x_name = "token",
                   .y_name = "norm",
                   .x_ticks = token_ticks,
                   .series = {course("norm", s.norm), course("bound", s.bound)},
                   .log = false});
  out += draw(Plot{.caption = {id + "-factors", "Contraction, " + of + ".",
                               "1 - beta a: what a token leaves of the error of its own sample."},
                   .x_name = "token",
                   .y_name = "1 - beta a",
                   .x_ticks = token_ticks,
                   .series = {course("largest", s.factor), course("least", s.factor, true)},
                   .log = false});
  if (condition.size() > 1 && std::ranges::max(entry) > 0)
    out += draw(Plot{.caption = {id + "-inverse", "The inverse of each chunk, " + of + ".",
                                 "The condition number of I + L, and the largest entry of its inverse."},
                     .x_name = "chunk",
                     .y_name = "I + L",
                     .x_ticks = cell_ticks(static_cast<Index>(condition.size()), 8, false),
                     .series = {course("condition", condition), course("largest entry", entry)}});
  return out;
}

}  // namespace delta
