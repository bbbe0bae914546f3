// SPDX-License-Identifier: Apache-2.0
// The page of `verify --html`. Each section is a function of one verdict.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "checks/report/analysis_report.hpp"
#include "checks/report/sections.hpp"
#include "checks/report/svg.hpp"
#include "checks/report/verify_report.hpp"
#include "checks/verify/prove.hpp"

namespace delta {
namespace {

/// A verdict with what the page calls it.
struct Item {
  const FileVerdict& v;
  std::string id;    ///< of its place on the page
  std::string file;  ///< its name, with as many folders as tell it from the others
};

/// File names without the folders that say where somebody's files lie: the shortest endings that differ.
std::vector<std::string> short_names(const std::vector<FileVerdict>& all) {
  std::vector<std::string> names;
  for (const FileVerdict& v : all) {
    const std::filesystem::path path(v.file);
    std::vector<std::string> parts;
    for (const auto& part : path) parts.push_back(part.string());
    std::string name = parts.empty() ? v.file : parts.back();
    auto others = [&] {
      return std::ranges::count_if(all, [&](const FileVerdict& w) {
        return w.file != v.file && (w.file == name || w.file.ends_with("/" + name));
      });
    };
    for (std::size_t i = parts.size(); i-- > 1 && others() > 0;) name = parts[i - 1] + "/" + name;
    names.push_back(name);
  }
  return names;
}

std::string replaced(std::string s, const std::string& what, const std::string& with) {
  for (std::size_t i = 0; !what.empty() && (i = s.find(what, i)) != s.npos; i += with.size())
    s.replace(i, what.size(), with);
  return s;
}

bool of_state(const std::string& tensor) { return tensor.ends_with("_state"); }

Html number_cell(double x, const char* format) { return "td"_tag("class", "n")(text(figure(x, format))); }

// ---------------------------------------------------------------- sections

/// One row a file.
Html summary(const std::vector<Item>& all) {
  std::vector<Html> rows;
  for (const Item& i : all) {
    const FileVerdict& v = i.v;
    Html looks_like;
    if (!v.diagnosis.empty()) looks_like = text(mistake_text(v.diagnosis[0]));
    Html row = "td"_tag(badge(verdict_word(v))) +
               "td"_tag("class", "file-name")("a"_tag("href", "#" + i.id)(isolated(i.file))) + "td"_tag(text(v.rule));
    row += v.unreadable ? "td"_tag(Html()) + "td"_tag(Html())
                        : number_cell(v.ratio(), "%.3g") + "td"_tag("class", "bar-cell")(ratio_bar(v.ratio()));
    rows.push_back(row + "td"_tag("class", "wrap")(looks_like));
  }
  return table("the files and their verdicts",
               {{"verdict"}, {"file"}, {"rule"}, {"ratio", "n"}, {"0.1 to 1000", "bar-cell"}, {"looks like"}}, rows);
}

Html figures(const Item& i) {
  std::vector<Html> rows;
  for (const Judged& j : i.v.outputs)
    rows.push_back("th"_tag("scope", "row")("code"_tag(text(j.tensor))) + number_cell(j.ratio, "%.3g") +
                   "td"_tag("class", "bar-cell")(ratio_bar(j.ratio)) + number_cell(j.error, "%.2e") +
                   number_cell(j.expected, "%.2e") + number_cell(j.rel_error, "%.2e"));
  if (rows.empty()) return {};
  return table("figures of each tensor",
               {{"tensor"},
                {"ratio", "n"},
                {"marks at 1.5 and 2", "bar-cell"},
                {"error", "n"},
                {"expected", "n"},
                {"Frobenius", "n"}},
               rows);
}

Html places(const Item& i) {
  std::vector<Html> rows;
  auto add = [&](std::string_view what, const std::optional<BadPlace>& p) {
    if (!p) return;
    rows.push_back("th"_tag("scope", "row")(text(what)) + "td"_tag("code"_tag(text(p->tensor))) +
                   "td"_tag("class", "wrap")(text(replaced(place_text(*p), "  ", ", "))) +
                   number_cell(p->want, "%.7g") + number_cell(p->got, "%.7g"));
  };
  if (i.v.verdict == Verdict::passed) return {};
  add("first", i.v.first_bad), add("worst", i.v.worst);
  return rows.empty() ? Html() : table("places", {{"place"}, {"tensor"}, {"where"}, {"want", "n"}, {"got", "n"}}, rows);
}

Html diagnosis(const Item& i) {
  const FileVerdict& v = i.v;
  Html out;
  if (v.diagnosis.empty() && v.verdict == Verdict::failed)
    out += "p"_tag("Unknown: no known mistake reproduces this output."_html);
  for (const Diagnosis& d : v.diagnosis) {
    Html lines;
    auto line = [&](const char* what, std::string_view formula) {
      lines += "span"_tag(text(what)) + "div"_tag("class", "formula-line")(math(formula));
    };
    if (const Rule* rule = find_rule(v.rule)) line("the rule", rule->info.formula);
    for (const std::string& wrong : d.what) line("with the mistake", wrong);
    out += "div"_tag("class", "mistake")("strong"_tag(text(mistake_text(d))),
                                         text("  reproduces " + d.explains + " to " + figure(d.rel_error, "%.1e")),
                                         "div"_tag("class", "formulas")(lines));
  }
  std::vector<Html> rows;
  for (const Pattern& p : v.patterns)
    rows.push_back("td"_tag("code"_tag(text(p.tensor))) + "td"_tag("class", "wrap")(text(p.text)));
  if (!rows.empty()) out += table("where", {{"tensor"}, {"wrong there and nowhere else"}}, rows);
  return out;
}

/// A map of parts that are not judged by themselves: the worst of them stands for the whole tensor, the others in
/// proportion.
Mat<double> in_proportion(const Mat<double>& parts, double whole) {
  const double worst = parts.size() ? parts.maxCoeff() : 0;
  if (!std::isfinite(worst) || !std::isfinite(whole) || worst == 0) return parts;
  return parts * (whole / worst);
}

/// Error by token and by channel, of one tensor.
Html pictures(const Item& i, const Judged& j) {
  const ErrorMap& rows = j.by_token;
  if (rows.ratio.size() == 0) return {};
  const bool state = of_state(j.tensor);
  const std::string unit = state ? "value channel" : "token", id = i.id + "-" + j.tensor;

  Html out;
  if (!state && rows.ratio.rows() > 1)
    out += draw(Plot{.caption = {id + "-curve", j.tensor + ", worst head of each token.",
                                 "The error of a token over what correct code makes; above the band it fails."},
                     .x_name = unit,
                     .y_name = "error / expected",
                     .x_ticks = cell_ticks(rows.ratio.rows() * rows.bin, 8, true),
                     .series = {envelope(j.tensor, rows.ratio.transpose())},
                     .thresholds = true,
                     .steps = true});
  HeatMap by_token{
      .caption = {id + "-tokens", j.tensor + ", " + unit + " by head.",
                  state ? "The worst stands for the whole state, the others in proportion."
                        : "Where along the sequence, and in which heads, the error stands."},
      .ratio = state ? in_proportion(rows.ratio.transpose(), j.ratio) : Mat<double>(rows.ratio.transpose()),
      .row_name = "head",
      .column_name = unit,
      .per_column = rows.bin};
  if (const auto& d = i.v.diagnosis; !state && !d.empty() && d[0].chunk) {
    by_token.chunk = *d[0].chunk;
    by_token.caption.says += " Lines part chunks of " + std::to_string(*d[0].chunk) + ".";
  }
  const std::optional<BadPlace>& p = i.v.first_bad;
  if (p && p->tensor == j.tensor)
    by_token.mark = {{p->head, p->t / rows.bin}}, by_token.mark_says = "first bad place: " + place_text(*p);
  HeatMap by_channel{.caption = {id + "-channels", j.tensor + (state ? ", key channel by head." : ", channel by head."),
                                 "The worst stands for the whole tensor, the others in proportion."},
                     .ratio = in_proportion(j.by_channel.ratio.transpose(), j.ratio),
                     .row_name = "head",
                     .column_name = state ? "key channel" : "channel"};
  if (p && p->tensor == j.tensor) by_channel.mark = {{p->head, p->channel}}, by_channel.mark_says = by_token.mark_says;
  return out + draw(by_token) + draw(by_channel);
}

Html where(const Item& i) {
  Html out;
  for (const Judged& j : i.v.outputs) out += pictures(i, j);
  return out.empty() ? out : heat_legend() + out;
}

/// The worst token of each strength of gate.
Html gates(const Item& i) {
  const std::vector<Rung>& rungs = i.v.portrait.gates;
  const auto n = static_cast<double>(rungs.size());
  Plot p{.caption = {i.id + "-gates", "o, ratio against the strength of the gates.",
                     "The worst token whose gate is of that strength: −ln α of the channel that forgets most."},
         .x_name = "gates",
         .y_name = "error / expected",
         .x_ticks = {},
         .series = {{"o", {}}},
         .thresholds = true,
         .dots = true};
  std::vector<Html> rows;
  for (std::size_t r = 0; r < rungs.size(); ++r) {
    const double x = (static_cast<double>(r) + 0.5) / n;
    p.x_ticks.emplace_back(x, rungs[r].name);
    rows.push_back("th"_tag("scope", "row")(text(rungs[r].name)) + "td"_tag(text(rungs[r].range)) +
                   "td"_tag("class", "n")(text(std::to_string(rungs[r].tokens))) +
                   (rungs[r].tokens ? number_cell(rungs[r].ratio, "%.3g") : "td"_tag("class", "n")("–"_html)));
    if (rungs[r].tokens) p.series[0].points.emplace_back(x, rungs[r].ratio);
  }
  if (p.series[0].points.empty()) return {};
  return draw(p) +
         table("rungs of the gate ladder", {{"gates"}, {"−ln α"}, {"tokens", "n"}, {"worst ratio", "n"}}, rows);
}

Html judged_by(const Item& i) {
  const FileVerdict& v = i.v;
  std::string differs;
  for (const Judged& j : v.outputs)
    differs += (differs.empty() ? "" : ", ") + figure(j.reference, "%.1e") + " (" + j.tensor + ")";
  Html dominant;
  for (const Dominant& d : v.dominant)
    dominant +=
        text(d.tensor + ": " + d.intermediate + ", " + figure(100 * d.share, "%.0f") + " % of the square error") +
        "br"_tag();
  Html proved;
  if (v.proof)
    for (const std::string& line : proof_lines(*v.proof)) proved += text(line) + "br"_tag();
  return "dl"_tag(fact("looks like the class",
                       v.grade ? text(*v.grade + (v.grade_reason.empty() ? "" : ": " + v.grade_reason)) : Html()),
                  fact("most of the error from", dominant), fact("expected error", text("from " + v.model)),
                  fact("reference", text(v.judge.how)),
                  fact("its own error", text(differs + " from " + v.judge.against)), fact("proved", proved));
}

Html about_file(const Item& i) {
  static const std::set<std::string> said{"rule", "scale", "state_layout"};  // by the facts, as they were taken
  Html out;
  for (const auto& [what, value] : i.v.portrait.facts) out += fact(what, text(value));
  for (const auto& [what, value] : i.v.portrait.metadata)
    if (!value.empty() && !said.contains(what)) out += "dt"_tag(isolated(what)) + "dd"_tag(isolated(value));
  return "dl"_tag(out);
}

Html notes(const Item& i) {
  Html out;
  for (const std::string& h : i.v.hints) out += "p"_tag(isolated(h));
  for (const std::string& n : i.v.notes) out += "p"_tag(isolated(n));
  return out;
}

Html part(const char* heading, const Html& content) {
  return content.empty() ? content : "h3"_tag(text(heading)) + content;
}

Html file(const Item& i, bool open, const std::string& command) {
  const FileVerdict& v = i.v;
  const std::string word(verdict_word(v));
  const Html title =
      "summary"_tag("class", "title")("h2"_tag(isolated(i.file)), badge(word), "small"_tag(text(v.rule)));
  Html body = "p"_tag(
      "class", "reason")(isolated(replaced(replaced(v.reason, v.file, i.file), UsageError(v.file).what(), i.file)));
  if (!v.unreadable)
    body += figures(i) + part("Notes", notes(i)) + part("Diagnosis", diagnosis(i)) + part("Bad places", places(i)) +
            part("Where the error is", where(i)) + part("Gate ladder", gates(i)) +
            part("Stability", v.analysis ? analysis_html(*v.analysis, i.id + "-stability") : Html()) +
            part("How it was judged", judged_by(i)) + part("The file", about_file(i));
  body += part("Judge it again", "pre"_tag(text(command + " " + shell_word(i.file))));
  Tag element = "details"_tag("class", "file " + word)("id", i.id);
  return (open ? element("open", "open") : element)(title, body);
}

}  // namespace

std::string verify_html(const std::vector<FileVerdict>& all, const Environment& e, const std::string& options) {
  const std::vector<std::string> names = short_names(all);
  std::vector<Item> items;
  for (std::size_t i = 0; i < all.size(); ++i) items.push_back({all[i], "file" + std::to_string(i + 1), names[i]});
  const std::string command = called_as() + " verify" + options;
  std::map<std::string_view, int> count;
  for (const FileVerdict& v : all) ++count[verdict_word(v)];

  Html counts, files;
  for (const auto& [word, n] : count) counts += badge(word) + text(" " + std::to_string(n) + "  ");
  for (const Item& i : items)
    files += file(i, all.size() == 1 || i.v.unreadable || i.v.verdict != Verdict::passed, command);
  return page("deltaref verify: " + (all.size() == 1 ? names[0] : std::to_string(all.size()) + " files"),
              "header"_tag("h1"_tag(all.size() > 1 ? "Verdicts on kernels"_html : "Verdict on a kernel"_html),
                           all.size() > 1 ? "p"_tag(counts) : Html()) +
                  (all.size() > 1 ? section("Files", summary(items)) : Html()) + files +
                  about(e, command + " FILE..."));
}

}  // namespace delta
