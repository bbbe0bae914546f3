// SPDX-License-Identifier: Apache-2.0
#include "checks/verify/verify.hpp"

#include <algorithm>
#include <iterator>
#include <new>

#include "checks/core/parallel_for.hpp"
#include "checks/verify/grade.hpp"

namespace delta {
namespace {

/// Every lane, then every group of lanes whose gradients add up.
Evidence judge_lanes(const Plan& plan, Index certified, int threads) {
  const Subject& s = plan.subject;
  const Shape& z = s.shape();
  std::vector<Evidence> parts(static_cast<std::size_t>(s.lanes()));
  parallel_for(s.lanes(), threads, [&](Index lane) {
    parts[static_cast<std::size_t>(lane)] = judge_outputs(plan, lane / z.HV, lane % z.HV, lane < certified);
  });
  const auto share = z.HV / z.H, groups = s.gradients().empty() ? 0 : z.sequences() * z.H;
  std::vector<std::vector<Measured>> gradients(static_cast<std::size_t>(groups));
  parallel_for(groups, threads, [&](Index g) {
    gradients[static_cast<std::size_t>(g)] = judge_gradients(plan, g / z.H, g % z.H, g * share < certified);
  });
  Evidence all;
  for (Evidence& e : parts) {
    std::ranges::move(e.measured, std::back_inserter(all.measured));
    all.bf16.add(e.bf16), all.fp16.add(e.fp16);
  }
  for (auto& g : gradients) std::ranges::move(g, std::back_inserter(all.measured));
  return all;
}

/// Whether what the forward pass returned is beyond what correct code makes, in size or as a state of narrow numbers.
bool forward_is_off(const FileVerdict& v) {
  if (v.verdict != Verdict::failed && v.verdict != Verdict::marginal) return false;
  const auto off = [](const Judged& j) { return judge(j.ratio) != Verdict::passed; };
  return std::ranges::none_of(v.outputs, off) || std::ranges::any_of(v.outputs, [&](const Judged& j) {
           return (j.tensor == "o" || j.tensor == "final_state") && off(j);
         });
}

/// The errors of each lane, and what is expected of it, as a diagnosis takes them.
std::pair<std::vector<Errors>, std::vector<Errors>> errors_by_lane(const Subject& s, const std::vector<Measured>& all) {
  std::vector<Errors> error(static_cast<std::size_t>(s.lanes())), expected = error;
  for (const Measured& m : all) {
    const auto lane = static_cast<std::size_t>(m.n * s.shape().HV + m.head);
    if (m.tensor == "o") error[lane].o = m.error, expected[lane].o = m.expected;
    if (m.tensor == "final_state") error[lane].state = m.error, expected[lane].state = m.expected;
  }
  return {error, expected};
}

}  // namespace

FileVerdict verify(const Dump& dump, const DumpOptions& options, int threads) {
  const Subject s(dump, options);
  FileVerdict v{.file = dump.file, .rule = std::string(s.rule().info.id), .hints = s.hints(), .notes = s.notes()};
  const Plan plan = plan_for(s);
  const Index certified = plan.certify_all ? s.lanes() : std::min<Index>(s.lanes(), threads);
  Evidence evidence = judge_lanes(plan, certified, threads);
  v.model =
      std::to_string(plan.draws.size()) + " draws of " + std::string(s.operands().name) +
      (s.operands().p >= kFp32.p ? " forms (recurrent, chunks of 16 to 128)"
                                 : " kernels (recurrent, chunks of 16 to 128, one solve or two, fp32 sums and state)");
  v.judge.how = plan.wide ? "recurrence in double-double" : "recurrence in double";
  v.judge.against = plan.wide          ? "its rounding to double"
                    : plan.certify_all ? "the recurrence in double-double, every lane"
                                       : "the chunk form in double, " + std::to_string(certified) + " of " +
                                             std::to_string(s.lanes()) + " lanes";
  conclude(s, evidence, v);
  grade(s, evidence, threads, v);
  v.portrait = portrait(dump, s, evidence.measured);
  if (forward_is_off(v)) {
    const auto [error, expected] = errors_by_lane(s, evidence.measured);
    v.diagnosis = diagnose(s, error, expected, threads);
  }
  v.patterns = find_patterns(s, evidence.measured, v.diagnosis.empty(), threads);
  if (v.excused && !(v.diagnosis.empty() && v.patterns.empty())) withdraw_excuse(v);
  if (v.verdict == Verdict::failed || v.verdict == Verdict::marginal) {
    if (const std::optional<Format> f = s.hidden_format())
      v.notes.push_back("q, k and v hold only " + std::string(f->name) + " numbers: if the kernel took them as " +
                        std::string(f->name) + ", store them in that type and it is judged as " + std::string(f->name) +
                        " code");
  }
  return v;
}

FileVerdict verify_file(const std::string& path, const DumpOptions& options, int threads) {
  try {
    return verify(read_dump(path, has_meaning), options, threads);
  } catch (const UsageError& e) {
    return {.file = path, .rule = options.rule, .unreadable = true, .reason = e.what()};
  } catch (const std::bad_alloc&) {
    const UsageError e(path + ": needs more memory than there is; store fewer heads or tokens");
    return {.file = path, .rule = options.rule, .unreadable = true, .reason = e.what()};
  }
}

}  // namespace delta
