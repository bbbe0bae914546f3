// SPDX-License-Identifier: Apache-2.0
// The document of `verify --json`. JSON has no literal for what is not finite: it is written as null.
#include <cmath>
#include <nlohmann/json.hpp>

#include "checks/report/analysis_report.hpp"
#include "checks/report/verify_report.hpp"

namespace delta {
namespace {

using Json = nlohmann::ordered_json;

Json place_json(const std::optional<BadPlace>& p) {
  if (!p) return nullptr;
  return {{"tensor", p->tensor},
          {"b", p->b},
          {"t", p->t},
          {"head", p->head},
          {"channel", p->channel},
          {"want", p->want},
          {"got", std::isfinite(p->got) ? Json(p->got) : Json(std::to_string(p->got))}};
}

Json proof_json(const Proof& proof) {
  Json j = Json::object();
  for (const Proved& p : proof.outputs)
    j[p.tensor] = {{"lower", p.error.lower},
                   {"upper", p.error.upper},
                   {"elements", p.elements},
                   {"rounded", p.rounded},
                   {"not_rounded", p.not_rounded}};
  j["lanes"] = proof.lanes, j["of_lanes"] = proof.of_lanes;
  j["tokens"] = proof.tokens, j["of_tokens"] = proof.of_tokens;
  j["bits"] = proof.bits, j["sharp"] = proof.sharp;
  return j;
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
    for (const Judged& t : v.outputs) (j.contains(t.tensor) ? j : j["gradients"])[t.tensor] = t.*figure;
    return j;
  };
  Json expected = by_tensor(&Judged::expected), outputs = Json::array();
  expected["model"] = v.model;
  for (const Judged& t : v.outputs)
    outputs.push_back({{"tensor", t.tensor},
                       {"ratio", t.ratio},
                       {"error", t.error},
                       {"expected", t.expected},
                       {"least_expected", t.least},
                       {"rel_error", t.rel_error}});
  Json diagnosis = Json::array();
  for (const Diagnosis& d : v.diagnosis) {
    diagnosis.push_back({{"id", d.id},
                         {"what", d.what},
                         {"explains", d.explains},
                         {"chunk", d.chunk ? Json(*d.chunk) : Json(nullptr)},
                         {"rel_error", d.rel_error}});
    if (d.factor) diagnosis.back()["factor"] = *d.factor;
  }
  j["rule"] = v.rule;
  j["verdict"] = name(v.verdict);
  j["reason"] = v.reason;
  j["ratio"] = v.ratio();
  j["rel_error"] = by_tensor(&Judged::rel_error);
  j["expected_error"] = expected;
  j["outputs"] = outputs;
  j["grade"] = v.grade ? Json(*v.grade) : Json(nullptr);
  if (v.grade) j["grade_reason"] = v.grade_reason;
  j["classes"] = Json::array();
  for (const ClassError& c : v.classes)
    j["classes"].push_back({{"grade", c.grade},
                            {"model", c.model},
                            {"o", c.o},
                            {"final_state", c.final_state ? Json(*c.final_state) : Json(nullptr)},
                            {"explained", c.explained}});
  j["dominant"] = Json::array();
  for (const Dominant& d : v.dominant)
    j["dominant"].push_back({{"tensor", d.tensor}, {"intermediate", d.intermediate}, {"share", d.share}});
  j["first_bad"] = place_json(v.first_bad);
  j["judge"] = {{"reference", v.judge.how}, {"against", v.judge.against}, {"error", by_tensor(&Judged::reference)}};
  j["diagnosis"] = diagnosis;
  j["patterns"] = Json::array();
  for (const Pattern& p : v.patterns) j["patterns"].push_back({{"tensor", p.tensor}, {"id", p.id}, {"text", p.text}});
  if (v.proof) j["proof"] = proof_json(*v.proof);
  if (!v.hints.empty()) j["hints"] = v.hints;
  if (!v.notes.empty()) j["notes"] = v.notes;
  if (v.analysis) j["analysis"] = analysis_json(*v.analysis);
  return j;
}

}  // namespace

std::string verify_json(const std::vector<FileVerdict>& all) {
  Json files = Json::array();
  for (const FileVerdict& v : all) files.push_back(to_json(v));
  // A name from outside may be no UTF-8; it is replaced, not refused. ASCII alone drives no terminal.
  return Json{{"files", files}}.dump(1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace delta
