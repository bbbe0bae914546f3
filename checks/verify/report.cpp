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
  const bool of_state = p.tensor == "final_state" || p.tensor == "d_initial_state";
  s << p.tensor;
  if (!of_state)
    s << "  b " << p.b << "  t " << p.t << "  head " << p.head << "  channel " << p.channel;
  else
    s << "  sequence " << p.b << "  head " << p.head << "  value channel " << p.t << "  key channel " << p.channel;
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
  // The contract's fields by tensor: o, final_state, and the gradients in an object of their own.
  const auto by_tensor = [&](double Judged::*figure) {
    Json j{{"o", nullptr}, {"final_state", nullptr}, {"gradients", Json::object()}};
    for (const Judged& t : v.outputs) (j.contains(t.tensor) ? j : j["gradients"])[t.tensor] = number(t.*figure);
    return j;
  };
  Json expected = by_tensor(&Judged::expected), outputs = Json::array();
  expected["model"] = v.model;
  for (const Judged& t : v.outputs)
    outputs.push_back({{"tensor", t.tensor},
                       {"ratio", number(t.ratio)},
                       {"error", number(t.error)},
                       {"expected", number(t.expected)},
                       {"rel_error", number(t.rel_error)}});
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
  j["rel_error"] = by_tensor(&Judged::rel_error);
  j["expected_error"] = expected;
  j["outputs"] = outputs;
  j["grade"] = v.grade ? Json(*v.grade) : Json(nullptr);
  j["first_bad"] = place_json(v.first_bad);
  j["judge"] = {{"reference", v.judge.how}, {"against", v.judge.against}, {"error", by_tensor(&Judged::reference)}};
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
  for (const Judged& j : v.outputs) {
    char line[160];
    std::snprintf(line, sizeof line, "  %-15s ratio %-8.3g error %-9.2e expected %-9.2e Frobenius %.2e\n",
                  j.tensor.c_str(), j.ratio, j.error, j.expected, j.rel_error);
    s << line;
  }
  if (v.first_bad) s << "  first bad    " << place_text(*v.first_bad) << '\n';
  if (v.worst && v.verdict != Verdict::passed) s << "  worst        " << place_text(*v.worst) << '\n';
  for (const Diagnosis& d : v.diagnosis)
    s << "  looks like   " << d.id << (d.factor ? " by " + figure(*d.factor, "%.4g") : "")
      << (d.chunk ? " at chunks of " + std::to_string(*d.chunk) : "") << "  explains " << d.explains << " to "
      << figure(d.rel_error, "%.1e") << '\n';
  if (v.diagnosis.empty() && v.verdict == Verdict::failed)
    s << "  looks like   unknown: no known mistake reproduces it\n";
  s << "  expected     from " << v.model << '\n';
  s << "  judge        " << v.judge.how;
  for (const Judged& j : v.outputs)
    s << (&j == v.outputs.data() ? "; differs by " : ", ") << figure(j.reference, "%.1e") << " (" << j.tensor << ")";
  s << " from " << v.judge.against << '\n';
  for (const std::string& n : v.notes) s << "  note         " << n << '\n';
  return s.str();
}

}  // namespace delta
