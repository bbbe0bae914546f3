// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checks/verify/verify.hpp"

namespace delta {
namespace {

using Json = nlohmann::ordered_json;

std::string figure(double x, const char* format = "%.2g") {
  char s[40];
  std::snprintf(s, sizeof s, format, x);
  return s;
}

/// JSON has no literal for what is not finite: null stands for it.
Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

std::string place_text(const BadPlace& p) {
  std::ostringstream s;
  if (p.tensor == "o")
    s << "o  b " << p.b << "  t " << p.t << "  head " << p.head << "  channel " << p.channel;
  else
    s << "final_state  sequence " << p.b << "  head " << p.head << "  value channel " << p.t << "  key channel "
      << p.channel;
  s << "  want " << figure(p.want, "%.7g") << "  got " << figure(p.got, "%.7g");
  return s.str();
}

Json place_json(const std::optional<BadPlace>& p) {
  if (!p) return nullptr;
  return {{"tensor", p->tensor},
          {"b", p->b},
          {"t", p->t},
          {"head", p->head},
          {"channel", p->channel},
          {"want", number(p->want)},
          {"got", std::isfinite(p->got) ? Json(p->got) : Json(figure(p->got))}};
}

Json to_json(const FileVerdict& v) {
  Json j{{"file", v.file}};
  if (v.unreadable) {
    j["verdict"] = "unreadable", j["reason"] = v.reason;
    return j;
  }
  Json rel_error = Json::object(), expected = Json::object();
  rel_error["o"] = number(v.o.rel_error);
  rel_error["final_state"] = v.final_state.present ? number(v.final_state.rel_error) : Json(nullptr);
  rel_error["gradients"] = Json::object();
  expected["o"] = number(v.o.expected);
  expected["final_state"] = v.final_state.present ? number(v.final_state.expected) : Json(nullptr);
  expected["model"] = v.model;
  Json diagnosis = Json::array();
  for (const Diagnosis& d : v.diagnosis) {
    diagnosis.push_back({{"id", d.id},
                         {"explains", d.explains},
                         {"chunk", d.chunk ? Json(*d.chunk) : Json(nullptr)},
                         {"rel_error", number(d.rel_error)}});
    if (d.factor) diagnosis.back()["factor"] = number(*d.factor);
  }
  j["rule"] = v.rule;
  j["verdict"] = name(v.verdict);
  j["reason"] = v.reason;
  j["ratio"] = number(v.ratio());
  j["rel_error"] = rel_error;
  j["expected_error"] = expected;
  j["grade"] = v.grade ? Json(*v.grade) : Json(nullptr);
  j["first_bad"] = place_json(v.first_bad);
  j["judge"] = {{"reference", v.judge.how},
                {"against", v.judge.against},
                {"error", {{"o", number(v.judge.error_o)}, {"final_state", number(v.judge.error_state)}}}};
  j["diagnosis"] = diagnosis;
  if (!v.notes.empty()) j["notes"] = v.notes;
  return j;
}

}  // namespace

std::string report_json(const std::vector<FileVerdict>& all) {
  Json files = Json::array();
  for (const FileVerdict& v : all) files.push_back(to_json(v));
  // A name from outside may be no UTF-8; it is replaced, not refused.
  return Json{{"files", files}}.dump(1, ' ', false, Json::error_handler_t::replace);
}

std::string report_text(const FileVerdict& v) {
  std::ostringstream s;
  if (v.unreadable) return "UNREADABLE  " + v.reason + "\n";
  std::string verdict(name(v.verdict));
  for (char& c : verdict) c = static_cast<char>(std::toupper(c));
  s << verdict << "  " << v.file << "  (" << v.rule << ")\n  " << v.reason << '\n';
  auto row = [&](const char* tensor, const Judged& j) {
    if (!j.present) return;
    char line[160];
    std::snprintf(line, sizeof line, "  %-12s ratio %-8.3g error %-9.2e expected %-9.2e Frobenius %.2e\n", tensor,
                  j.ratio, j.error, j.expected, j.rel_error);
    s << line;
  };
  row("o", v.o);
  row("final_state", v.final_state);
  if (v.first_bad) s << "  first bad    " << place_text(*v.first_bad) << '\n';
  if (v.worst && v.verdict != Verdict::passed) s << "  worst        " << place_text(*v.worst) << '\n';
  for (const Diagnosis& d : v.diagnosis)
    s << "  looks like   " << d.id << (d.factor ? " by " + figure(*d.factor, "%.4g") : "")
      << (d.chunk ? " at chunks of " + std::to_string(*d.chunk) : "") << "  explains " << d.explains << " to "
      << figure(d.rel_error, "%.1e") << '\n';
  if (v.diagnosis.empty() && v.verdict == Verdict::failed)
    s << "  looks like   unknown: no known mistake reproduces it\n";
  s << "  expected     from " << v.model << '\n';
  s << "  judge        " << v.judge.how << "; differs by " << figure(v.judge.error_o, "%.1e") << " (o), "
    << figure(v.judge.error_state, "%.1e") << " (state) from " << v.judge.against << '\n';
  for (const std::string& n : v.notes) s << "  note         " << n << '\n';
  return s.str();
}

}  // namespace delta
