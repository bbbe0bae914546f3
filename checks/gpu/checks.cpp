// SPDX-License-Identifier: Apache-2.0
// Which cases there are, and what is asked of a kernel on each.
#include "checks/gpu/checks.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "checks/gpu/judges.hpp"

namespace delta::gpu {
namespace {

constexpr std::string_view kSizes[] = {
    // v1 to v3: any width; v4: 64 and 128.
    "B1_T0_H1_HV1_K64_V64_C64",
    "B2_T1_H1_HV1_K64_V128_C64",
    "B1_T37_H1_HV2_K20_V12_C64",
    "B1_T63_H1_HV1_K128_V64_C64",
    "B1_T130_H1_HV2_K64_V64_C64",
    "B1_T65_H2_HV6_K64_V64_C64",
    "B1_T137_H1_HV2_K64_V128_packed0.5.5.69.130_C64",
    "B1_T70_H1_HV1_K256_V40_C64",
    "B1_T192_H1_HV1_K128_V128_C64",
    "B1_T260_H1_HV2_K64_V64_C64",                     // more chunks than a block holds at a time
    "B1_T207_H1_HV2_K64_V64_packed0.5.5.69.200_C64",  // sequences of v6 with 1, 0, 1 and 3 chunks
    "B1_T700_H1_HV2_K128_V128_C64",                   // every place of v7 is used twice
    "B1_T80_H1_HV140_K64_V64_packed0.5.5.69_C64",     // more parts than multiprocessors, some of them empty
};

constexpr Index kTraced = 130 * 2 * 64 * 64;  ///< numbers of all states, up to which every intermediate is compared

bool chosen(const std::vector<std::string>& list, std::string_view name) {
  return list.empty() || std::ranges::find(list, name) != list.end();
}
bool chosen(const Selection& what, std::int32_t version) {
  return what.versions.empty() || std::ranges::find(what.versions, version) != what.versions.end();
}

constexpr std::int32_t kMoreThanChunks = 7;  ///< segments: so many chunks has none of these sequences

/// The numbers of segments that a version is asked for: these sequences are too short for it to cut them by itself.
std::vector<std::int32_t> segments_of(std::int32_t version) {
  return version == DELTAREF_V6 ? std::vector<std::int32_t>{2, 3, kMoreThanChunks} : std::vector<std::int32_t>{0};
}

bool holds(const Problem<double>& p, const Format& f) {
  auto fits = [&](double x) { return std::isnan(x) || f.round(x) == x; };
  return std::ranges::all_of(p.q.data, fits) && std::ranges::all_of(p.k.data, fits) &&
         std::ranges::all_of(p.v.data, fits);
}

/// One rule on one family at one of the sizes.
struct Job {
  const Rule* rule;
  const Family* family;
  std::string_view size;
};

/// The long ones first, so that none is alone at the end.
std::vector<Job> jobs(const Selection& what) {
  std::vector<Job> all;
  for (std::int32_t number = 0; number <= DELTAREF_KDA; ++number) {
    const Rule* const rule = find_rule(deltaref_gpu_rule_name(number));
    if (!rule || !chosen(what.rules, rule->info.id)) continue;
    for (const Family& f : families()) {
      if (!chosen(what.families, f.name) || !f.concerns(rule->info)) continue;
      if (what.quick && f.name != "alpha_zero") continue;
      for (const std::string_view size : kSizes) {
        // Every family at one size of v4 and one of odd widths; the baseline at all of them.
        const bool everywhere = f.name == "gate_half" || f.name == "slack_nan";
        if (f.name != "gate_half" && (size == kSizes[11] || size == kSizes[12]))
          continue;  // where things lie, not what
        if (what.quick ? size != kSizes[2] && size != kSizes[6] && size != kSizes[10]
                       : !everywhere && size != kSizes[2] && size != kSizes[4])
          continue;
        all.push_back({rule, &f, size});
      }
    }
  }
  std::ranges::stable_sort(all, std::greater<>(), [](const Job& j) {
    const Shape z = Size::parse(j.size).shape;
    return z.B * z.T * z.HV * z.d_k * z.d_v;
  });
  return all;
}

/// A case and what is expected of it.
struct Judged {
  Case c;
  Model model{c};
};

void work(const Job& job, const Selection& what, const Report& report) {
  Size size = Size::parse(job.size);
  if (job.family->at && size.shape.offsets.empty()) {
    const Size at = job.family->at(size);
    if (at.shape.d_k != size.shape.d_k || at.C != size.C) return;  // the family's own size is not one of v4's
    size = at;
  }
  const bool baseline = job.family->name == "gate_half" && !what.quick;
  const bool variants = baseline && (job.size == kSizes[2] || job.size == kSizes[3] || job.size == kSizes[4]);
  const bool laws = baseline || (job.family->name == "alpha_zero" && !what.quick);
  Judged plain{{*job.rule, *job.family, size, what.seed}};
  std::optional<Judged> in_log, normalised;
  if (variants && job.rule->info.forget != Forget::no)
    in_log.emplace(Case(*job.rule, *job.family, size, what.seed, Variant::log_gate));
  if (variants || (what.quick && job.size == kSizes[10]))
    normalised.emplace(Case(*job.rule, *find_family("raw_keys"), size, what.seed, Variant::l2norm));

  const auto agreement = [&](const Case& c, Model& model, const Call& call) {
    judge_agreement(c, model, call, run_on_device(c.rule.info, c.given, with_trace(call)), report);
  };
  const auto numbers = size.shape.T * size.shape.HV * size.shape.d_k * size.shape.d_v;
  for (std::int32_t version = DELTAREF_V1; version <= DELTAREF_NEWEST; ++version)
    for (std::int32_t dtype = DELTAREF_BF16; dtype <= DELTAREF_FP64; ++dtype) {
      auto& [c, model] = plain;
      if (!chosen(what, version) || !c.served(version, dtype) || !holds(c.given, format_of(dtype))) continue;
      const bool wide = dtype >= DELTAREF_FP32, tensor_cores = version >= DELTAREF_V4;
      for (const std::int32_t segments : segments_of(version)) {
        const Call call = c.call(version, dtype, segments);
        if (version == DELTAREF_V6) judge_beside_v5(c, model, call, report);
        if (segments == 2) continue;  // which is v5, bit by bit
        judge_outputs(c, model, call, report);
        if (version == DELTAREF_V1 && wide && numbers <= kTraced) judge_tokens(c, model, call, report);
        if (version == DELTAREF_V3 && wide && numbers <= kTraced) judge_chunks(c, model, call, report);
        if (tensor_cores && numbers <= 4 * kTraced && segments < kMoreThanChunks) judge_chunks(c, model, call, report);
        if (version >= DELTAREF_V5) agreement(c, model, call);
        for (auto* variant : {&in_log, &normalised}) {
          if (!*variant) continue;
          auto& [other, expected] = **variant;
          judge_outputs(other, expected, other.call(version, dtype, segments), report);
          if (version >= DELTAREF_V5) agreement(other, expected, other.call(version, dtype, segments));
        }
        if (laws && (tensor_cores || dtype == DELTAREF_FP32) && segments < kMoreThanChunks) judge_laws(c, call, report);
      }
    }
}

/// Heads beyond 2^31 elements: the last one gives the bits it gives alone.
void far_rows(const Selection& what, const Report& report) {
  for (std::int32_t version = DELTAREF_V1; version <= DELTAREF_NEWEST; ++version) {
    if (!chosen(what, version) || (version >= DELTAREF_V5 && !hopper_is_here())) continue;
    Row row{.kernel = "v" + std::to_string(version),
            .rule = "gated_delta",
            .family = "gate_half",
            .shape = "B16_T17477_H64_HV64_K128_V128",
            .dtype = "bf16",
            .what = "offsets beyond 2^31",
            .reason = ""};
    bool same = false;
    row.reason = far_offsets(version, same);
    row.verdict = !row.reason.empty() ? Verdict::skipped : same ? Verdict::passed : Verdict::failed;
    row.ratio = same ? 0 : INFINITY;
    report(row);
  }
}

}  // namespace

void check_kernels(const Selection& what, const Report& report) {
  std::mutex mutex;
  const Report one_at_a_time = [&](const Row& r) {
    const std::lock_guard lock(mutex);
    report(r);
  };
  const std::vector<Job> all = jobs(what);
  const auto start = std::chrono::steady_clock::now();
  std::atomic<std::size_t> next = 0;
  std::exception_ptr error;
  {
    std::vector<std::jthread> pool;
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
      pool.emplace_back([&] {
        for (std::size_t i; (i = next++) < all.size();) try {
            if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > what.seconds) {
              one_at_a_time({.kernel = "all",
                             .rule = std::string(all[i].rule->info.id),
                             .family = std::string(all[i].family->name),
                             .shape = std::string(all[i].size),
                             .dtype = "all",
                             .what = "all",
                             .verdict = Verdict::skipped,
                             .reason = "no time was left"});
              continue;
            }
            work(all[i], what, one_at_a_time);
          } catch (...) {
            const std::lock_guard lock(mutex);
            error = std::current_exception(), next = all.size();
          }
      });
  }
  if (error) std::rethrow_exception(error);
  if (!what.quick && what.families.empty() && chosen(what.rules, "gated_delta")) far_rows(what, report);
}

}  // namespace delta::gpu
