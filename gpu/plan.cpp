// SPDX-License-Identifier: Apache-2.0
// What is decided before anything is launched: is the problem sound, which kernel serves it, how much memory it needs.
// Plain C++: it is compiled and tested without CUDA.
#include "gpu/plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <vector>

#include "gpu/status.hpp"

namespace delta::gpu {
namespace {

const char* const kRules[] = {"linear", "retnet", "mamba2", "delta", "gated_delta", "q_delta", "kda"};
const char* const kVersions[] = {"auto",
                                 "v1 (token by token)",
                                 "v2 (the state in registers)",
                                 "v3 (the chunk form in shared memory)",
                                 "v4 (the chunk form on tensor cores)",
                                 "v5 (the chunk form with Hopper's instructions)",
                                 "v6 (v5 on segments of a sequence at the same time)",
                                 "v7 (one multiprocessor a head)"};
static_assert(std::size(kRules) == DELTAREF_KDA + 1 && std::size(kVersions) == DELTAREF_NEWEST + 1);

bool in(std::int32_t value, std::int32_t first, std::int32_t last) { return value >= first && value <= last; }

Refusal invalid(std::string sentence) { return {DELTAREF_INVALID_ARGUMENT, std::move(sentence)}; }

std::string number(std::int64_t n) { return std::to_string(n); }

bool takes_gate(std::int32_t rule) { return rule != DELTAREF_LINEAR && rule != DELTAREF_DELTA; }
bool takes_beta(std::int32_t rule) { return rule >= DELTAREF_DELTA; }

/// 16-byte loads need pointers and strides that are multiples of 16 bytes.
bool aligned(const deltaref_tensor& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.stride_b % 8 == 0 && x.stride_t % 8 == 0 &&
         x.stride_h % 8 == 0;
}

/// What the copy engine can walk: an axis that is longer than 1 moves.
bool walkable(const deltaref_tensor& x, std::int64_t B, std::int64_t T, std::int64_t heads) {
  return (B < 2 || x.stride_b > 0) && (T < 2 || x.stride_t > 0) && (heads < 2 || x.stride_h > 0);
}

/// Of one number of the type that sums are kept in.
std::int64_t size_of_sums(const deltaref_gpu_problem& p) { return p.dtype == DELTAREF_FP64 ? 8 : 4; }

bool chunk_trace(const deltaref_trace& t) { return t.gamma || t.L_g || t.inverse || t.W || t.U || t.Z || t.S; }
bool token_trace(const deltaref_trace& t) { return t.e_prior || t.e_posterior || t.states; }

std::string capability(const deltaref_gpu_device_t& device) {
  return number(device.compute_capability / 10) + "." + number(device.compute_capability % 10);
}

// ---------------------------------------------------------------- what stands in the way of a version
// Each function: why the version cannot serve the problem on the device. Empty: it can, and the plan is filled.

std::string more_shared_memory(const std::string& who, std::int64_t bytes, const deltaref_gpu_device_t& device) {
  return who + " needs " + number(bytes) + " bytes of shared memory and a block has " + number(device.shared_memory);
}

std::string per_channel_decay(const std::string& version) {
  return version + " takes a scalar decay, kda has one per channel";
}

/// What every kernel on tensor cores asks of types, sizes and addresses.
std::string tensor_core_obstacle(const std::string& version, const deltaref_gpu_problem& p) {
  if (p.dtype > DELTAREF_FP16) return version + " takes bf16 and fp16";
  if ((p.d_k != 64 && p.d_k != 128) || (p.d_v != 64 && p.d_v != 128))
    return version + " has d_k and d_v of 64 and 128, got " + number(p.d_k) + " and " + number(p.d_v);
  if (!aligned(p.q) || !aligned(p.k) || !aligned(p.v) || !aligned(p.o))
    return version + " needs q, k, v and o aligned to 16 bytes with strides that are multiples of 8 elements";
  return "";
}

std::string v1_obstacle(const deltaref_gpu_problem& p, const deltaref_gpu_device_t&, deltaref_gpu_plan_t& out) {
  out.rows = 64;
  out.chunk = 1;
  out.workspace = static_cast<std::uint64_t>(sequences(p) * p.HV * p.d_k * p.d_v * size_of_sums(p));
  return "";
}

std::string v2_obstacle(const deltaref_gpu_problem&, const deltaref_gpu_device_t&, deltaref_gpu_plan_t& out) {
  out.rows = 16;
  out.chunk = 1;
  return "";
}

std::string v3_obstacle(const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device, deltaref_gpu_plan_t& out) {
  if (p.rule == DELTAREF_KDA) return per_channel_decay("v3");
  auto needs = [&](int C) { return v3_shared(C, p.d_k, size_of_sums(p)); };
  out.rows = kTile;
  out.chunk = 64;
  while (out.chunk > 16 && needs(out.chunk) > device.shared_memory) out.chunk /= 2;
  return needs(out.chunk) > device.shared_memory ? more_shared_memory("even a chunk of 16", needs(16), device) : "";
}

std::string v4_obstacle(const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device, deltaref_gpu_plan_t& out) {
  const bool per_channel = p.rule == DELTAREF_KDA;
  if (const std::string why = tensor_core_obstacle("v4", p); !why.empty()) return why;
  if (per_channel && p.trace.gamma) return "kda has a gamma per channel, none per token";
  if (p.rows > 64) return "a block of v4 owns 16, 32 or 64 rows of S";
  // As many rows of S a block as still leave a block for most multiprocessors: what a chunk needs is read once a block.
  const std::int64_t lanes = sequences(p) * p.HV;
  auto needs = [&](int stages) { return v4_shared(p.d_k, out.rows, per_channel, stages); };
  auto few_blocks = [&] { return lanes * (p.d_v / out.rows) * 4 < device.multiprocessors * 3; };
  out.rows = p.rows ? p.rows : 64;
  while (!p.rows && out.rows > 16 && (few_blocks() || needs(2) > device.shared_memory)) out.rows /= 2;
  if (needs(2) > device.shared_memory) return more_shared_memory("v4", needs(2), device);
  out.stages = kMostStages;
  while (needs(out.stages) > device.shared_memory) --out.stages;
  out.chunk = kChunk;
  out.workspace = static_cast<std::uint64_t>(slots(p, kChunk) * p.HV * v4_slot(p.d_k, per_channel).bytes());
  return "";
}

constexpr std::int64_t kMostCounted = (std::int64_t{1} << 31) - 2 * kChunk;

/// The blocks of a cluster that carries so many rows of S a block, and as many clusters as parts need or are resident.
/// A producer for every chain; two where a head has two chains, which are fast, and parts are so few that
/// multiprocessors are left.
std::string take_clusters(const std::string& version, const deltaref_gpu_problem& p,
                          const deltaref_gpu_device_t& device, std::int32_t rows, std::int64_t parts,
                          deltaref_gpu_plan_t& out) {
  out.rows = rows;
  out.chains = out.producers = static_cast<std::int32_t>(p.d_v / rows);
  if (out.chains == 2 && parts <= resident_clusters(device.multiprocessors, 6)) out.producers = 4;
  const std::int64_t resident = resident_clusters(device.multiprocessors, out.chains + out.producers);
  out.clusters = static_cast<std::int32_t>(std::min(parts, std::max(std::int64_t{1}, resident)));
  auto needs = [&](int stages) { return v5_shared(p.d_k, rows, stages); };
  if (needs(2) > device.shared_memory) return more_shared_memory(version, needs(2), device);
  // A team is told of its next chunk's stage only when it has filled the last one's: no more stages than teams.
  out.stages = std::min(kMostStages, kV5Teams * out.producers);
  while (needs(out.stages) > device.shared_memory) --out.stages;
  return "";
}

/// What every kernel with Hopper's instructions asks.
std::string hopper_obstacle(const std::string& version, const deltaref_gpu_problem& p,
                            const deltaref_gpu_device_t& device) {
  if (device.compute_capability != 90)
    return version + " is for compute capability 9.0, the device has " + capability(device);
  if (p.rule == DELTAREF_KDA) return per_channel_decay(version);
  if (std::string why = tensor_core_obstacle(version, p); !why.empty()) return why;
  if (!walkable(p.q, p.B, p.T, p.H) || !walkable(p.k, p.B, p.T, p.H) || !walkable(p.v, p.B, p.T, p.HV))
    return version + " needs q, k and v with positive strides";
  if (p.T > kMostCounted || slots(p, kChunk) * p.HV > kMostCounted)
    return version + " counts tokens and chunks in 32 bits";
  if (p.trace.W || p.trace.U) return version + " computes neither W nor U~";
  return "";
}

std::string v5_obstacle(const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device, deltaref_gpu_plan_t& out) {
  if (std::string why = hopper_obstacle("v5", p, device); !why.empty()) return why;
  if (p.rows && (p.rows < 64 || p.rows > p.d_v)) return "a block of v5 owns 64 or 128 rows of S, at most d_v";
  // A cluster is one block that carries all rows of S and one that prepares. Where heads are so few that all may have
  // two chains of 64 rows, they do, with two or four that prepare.
  const std::int64_t lanes = sequences(p) * p.HV;
  const bool few = p.d_v == 128 && lanes <= resident_clusters(device.multiprocessors, 4);
  out.segments = 1;
  out.chunk = kChunk;
  return take_clusters("v5", p, device, p.rows ? p.rows : few ? 64 : static_cast<std::int32_t>(p.d_v), lanes, out);
}

/// us that a chunk takes, as measured on an H200 with d_k = d_v = 128: by blocks of a cluster, and on one
/// multiprocessor.
constexpr double kChunkOfTwo = 2.1, kChunkOfFour = 1.2, kChunkOfSix = 1.05, kChunkAlone = 2.7;
double chunk_time(std::int64_t blocks) { return blocks == 2 ? kChunkOfTwo : blocks == 4 ? kChunkOfFour : kChunkOfSix; }

/// How often so many clusters, or blocks, are filled by so many parts.
std::int64_t rounds(std::int64_t parts, std::int64_t clusters) { return (parts + clusters - 1) / clusters; }

/// How v6 would serve a problem: rows of S a block, and segments of a sequence, 1 where whole ones are better.
struct Split {
  std::int32_t rows, segments;
};

/// What takes least time, by the chunks that follow each other. With lanes (sequence, head) and n chunks in the longest
/// sequence, whole sequences take
/// \f[ \lceil \mathrm{lanes} / \mathrm{clusters} \rceil\; n \f]
/// chunks one after the other, s segments
/// \f[ \big(\lceil \mathrm{lanes}\,(2 s - 3) / \mathrm{clusters} \rceil + \lceil \mathrm{lanes}\,(s - 1) /
///     \mathrm{clusters} \rceil\big)\; \lceil n / s \rceil \f]
/// and what a second walk and the scan cost besides. That is (3 s - 4) / s times the work, so it pays where
/// multiprocessors idle. Only shapes, the number of multiprocessors and what is forced decide. Unless they are asked
/// for, matrices take at most 15 % of the memory of q, k, v and o. \param whole  rows of S a block where sequences stay
/// whole
Split choose_split(const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device, std::int32_t whole) {
  constexpr double kWalk = 15, kScan = 10, kSegment = 1;  // us: a walk that fills and runs dry; the scan
  constexpr double kWorthwhile = 0.9;                     // of the time of whole sequences
  const std::int64_t lanes = sequences(p) * p.HV, n = rounded_up(longest(p), kChunk) / kChunk;
  const auto time = [&](std::int32_t rows, std::int64_t segments) {
    const std::int64_t blocks = 2 * p.d_v / rows, clusters = resident_clusters(device.multiprocessors, blocks);
    if (clusters == 0) return HUGE_VAL;
    const auto walks = [&](std::int64_t parts) { return rounds(lanes * parts, clusters); };
    const std::int64_t in_a_row =
        segments == 1 ? walks(1) * n
                      : (walks(v6_matrices(segments)) + walks(segments - 1)) * ((n + segments - 1) / segments);
    const std::int64_t side_by_side = lanes * (segments == 1 ? 1 : v6_matrices(segments));
    const bool six = blocks == 4 && side_by_side <= resident_clusters(device.multiprocessors, 6);
    return static_cast<double>(in_a_row) * chunk_time(six ? 6 : blocks) +
           (segments == 1 ? kWalk : 2 * kWalk + kScan + kSegment * static_cast<double>(segments));
  };
  const std::int64_t memory = 4 * tokens(p) * (p.H * p.d_k + p.HV * p.d_v);
  const bool forced = p.segments > 1;
  Split best{whole, 1};
  double least = forced ? HUGE_VAL : kWorthwhile * time(whole, 1);
  for (const std::int32_t rows : {std::int32_t{64}, static_cast<std::int32_t>(p.d_v)})
    for (std::int32_t s = forced ? p.segments : 2; s <= (forced ? p.segments : kMostSegments); ++s) {
      const bool fits = forced || 100 * lanes * v6_matrices(s) * v6_matrix(p.d_k) <= 15 * memory;
      if (fits && (!p.rows || p.rows == rows) && time(rows, s) < least) best = {rows, s}, least = time(rows, s);
    }
  return best;
}

std::string v6_obstacle(const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device, deltaref_gpu_plan_t& out) {
  if (p.segments == 1) return "v6 cuts sequences, and segments = 1 asks for whole ones";
  if (std::string why = v5_obstacle(p, device, out); !why.empty()) return why;
  if (p.d_k != p.d_v) return "v6 needs d_k = d_v, got " + number(p.d_k) + " and " + number(p.d_v);
  const Split split = choose_split(p, device, out.rows);
  if (split.segments == 1) return "v6 would save too little time here, or need too much memory";
  const std::int64_t lanes = sequences(p) * p.HV, matrices = lanes * v6_matrices(split.segments);
  if (matrices > kMostCounted) return "v6 counts the parts of sequences in 32 bits";
  out.segments = split.segments;
  out.workspace = static_cast<std::uint64_t>(matrices * v6_matrix(p.d_k));
  return take_clusters("v6", p, device, split.rows, matrices, out);
}

/// Does a multiprocessor for each head take less time than the clusters of v5? By the rounds of heads that follow each
/// other: the number of tokens has no say, or more of them would change bits.
bool alone_is_faster(const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device) {
  constexpr double kWorthwhile = 0.97;  // of the time of v5: less is noise
  deltaref_gpu_plan_t v5{};
  if (!v5_obstacle(p, device, v5).empty()) return true;
  const std::int64_t lanes = sequences(p) * p.HV, blocks = v5.chains + v5.producers,
                     clusters = resident_clusters(device.multiprocessors, blocks);
  if (clusters == 0) return true;
  return static_cast<double>(rounds(lanes, device.multiprocessors)) * kChunkAlone <
         kWorthwhile * static_cast<double>(rounds(lanes, clusters)) * chunk_time(blocks);
}

std::string v7_obstacle(const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device, deltaref_gpu_plan_t& out) {
  if (std::string why = hopper_obstacle("v7", p, device); !why.empty()) return why;
  if (p.rows && p.rows != p.d_v) return "a block of v7 carries all d_v rows of S";
  if (!walkable(p.o, p.B, p.T, p.HV)) return "v7 needs o with positive strides";
  const std::int64_t needs = v7_shared(p.d_k, p.d_v);
  if (needs > device.shared_memory) return more_shared_memory("v7", needs, device);
  if (p.version != DELTAREF_V7 && !alone_is_faster(p, device)) return "v7 would take longer here";
  out.chunk = kChunk;
  out.rows = static_cast<std::int32_t>(p.d_v);
  out.stages = V7Places::kStages;
  out.chains = out.segments = 1;
  out.clusters = static_cast<std::int32_t>(std::min<std::int64_t>(sequences(p) * p.HV, device.multiprocessors));
  return "";
}

/// Why that version cannot serve the problem on that device; empty: it can, and `out` is filled.
std::string obstacle(std::int32_t version, const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device,
                     deltaref_gpu_plan_t& out) {
  constexpr decltype(&v1_obstacle) obstacles[] = {v1_obstacle, v2_obstacle, v3_obstacle, v4_obstacle,
                                                  v5_obstacle, v6_obstacle, v7_obstacle};
  static_assert(std::size(obstacles) == DELTAREF_NEWEST);
  if (device.compute_capability < 80)
    return "the device has compute capability " + capability(device) + ", 8.0 or newer is needed";
  if (token_trace(p.trace) && version != DELTAREF_V1) return "per-token traces are written by v1 only";
  if (chunk_trace(p.trace) && version < DELTAREF_V3) return "chunk traces are written by v3 and newer";
  if (p.segments > 1 && version != DELTAREF_V6) return "sequences are cut by v6 only";
  out = {};
  out.version = version;
  if (std::string why = obstacles[version - 1](p, device, out); !why.empty()) return why;
  out.slots = slots(p, out.chunk);
  if (p.cu_seqlens)  // the offsets travel in front of the workspace
    out.workspace += static_cast<std::uint64_t>(rounded_up(8 * (p.sequences + 1), 256));
  return "";
}

/// Adds sentences to a text as long as it has room for them, the first one behind these words.
void add(std::string& text, const char* words, const std::vector<std::string>& sentences, std::size_t room) {
  for (const std::string& s : sentences)
    if (const std::string more = words + s; text.size() + more.size() <= room) text += more, words = "; ";
}

}  // namespace

std::int64_t sequences(const deltaref_gpu_problem& p) { return p.cu_seqlens ? p.sequences : p.B; }
std::int64_t tokens(const deltaref_gpu_problem& p) { return p.cu_seqlens ? p.cu_seqlens[p.sequences] : p.B * p.T; }
std::int64_t longest(const deltaref_gpu_problem& p) {
  if (!p.cu_seqlens) return p.T;
  std::int64_t most = 0;
  for (std::int64_t n = 0; n < p.sequences; ++n) most = std::max(most, p.cu_seqlens[n + 1] - p.cu_seqlens[n]);
  return most;
}
std::int64_t slots(const deltaref_gpu_problem& p, std::int64_t chunk) { return tokens(p) / chunk + sequences(p); }

Refusal check(const deltaref_gpu_problem& p) {
  if (!in(p.rule, 0, DELTAREF_KDA)) return invalid("rule: expected 0 (linear) to 6 (kda), got " + number(p.rule));
  if (!in(p.dtype, 0, DELTAREF_FP64)) return invalid("dtype: expected 0 (bf16) to 3 (fp64), got " + number(p.dtype));
  if (!in(p.gate, 0, 1)) return invalid("gate: expected 0 (log decay) or 1 (decay), got " + number(p.gate));
  if (!in(p.state_layout, 0, 1))
    return invalid("state_layout: expected 0 (kv) or 1 (vk), got " + number(p.state_layout));
  if (!in(p.version, 0, DELTAREF_NEWEST))
    return invalid("version: expected 0 (auto) to " + number(DELTAREF_NEWEST) + ", got " + number(p.version));
  if (p.rows != 0 && p.rows != 16 && p.rows != 32 && p.rows != 64 && p.rows != 128)
    return invalid("rows: expected 0 (chosen), 16, 32, 64 or 128, got " + number(p.rows));
  if (!in(p.segments, 0, kMostSegments))
    return invalid("segments: expected 0 (chosen), 1 (never cut) or 2 to " + number(kMostSegments) + ", got " +
                   number(p.segments));
  if (p.B < 1 || p.T < 0) return invalid("expected B >= 1 and T >= 0, got B = " + number(p.B) + ", T = " + number(p.T));
  if (p.H < 1 || p.HV < 1 || p.HV % p.H != 0)
    return invalid("HV must be a multiple of H, got H = " + number(p.H) + ", HV = " + number(p.HV));
  if (p.d_k < 1 || p.d_k > 256 || p.d_v < 1 || p.d_v > 256)
    return invalid("d_k and d_v must be 1 to 256, got " + number(p.d_k) + " and " + number(p.d_v));
  if (p.cu_seqlens) {
    if (p.B != 1) return invalid("a packed batch has B = 1, got B = " + number(p.B));
    if (p.sequences < 1) return invalid("cu_seqlens needs at least one sequence, got " + number(p.sequences));
    if (p.cu_seqlens[0] != 0) return invalid("cu_seqlens[0] must be 0, got " + number(p.cu_seqlens[0]));
    for (std::int64_t n = 0; n < p.sequences; ++n)
      if (p.cu_seqlens[n + 1] < p.cu_seqlens[n])
        return invalid("cu_seqlens must not decrease: entry " + number(n + 1) + " is " + number(p.cu_seqlens[n + 1]) +
                       " after " + number(p.cu_seqlens[n]));
    if (p.cu_seqlens[p.sequences] > p.T)
      return invalid("cu_seqlens ends at " + number(p.cu_seqlens[p.sequences]) + ", beyond T = " + number(p.T));
  }
  if (!(p.scale == p.scale)) return invalid("scale is not a number");
  if (p.qk_l2norm && !(p.l2norm_eps >= 0)) return invalid("l2norm_eps must be at least 0");
  struct {
    const char* name;
    const void* data;
  } const required[] = {{"q", p.q.data}, {"k", p.k.data}, {"v", p.v.data}, {"o", p.o.data}};
  for (const auto& x : required)
    if (!x.data && tokens(p) > 0) return invalid(std::string(x.name) + " is NULL");
  if (p.g.data && !takes_gate(p.rule))
    return invalid(std::string("g was given, and ") + kRules[p.rule] + " has no decay; leave it NULL");
  if (p.beta.data && !takes_beta(p.rule))
    return invalid(std::string("beta was given, and ") + kRules[p.rule] + " has no strength; leave it NULL");
  if (p.lambda.data && p.rule != DELTAREF_Q_DELTA)
    return invalid(std::string("lambda was given, and ") + kRules[p.rule] + " has none; leave it NULL");
  return {};
}

Refusal plan(const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device, deltaref_gpu_plan_t& out) {
  if (Refusal r = check(p)) return r;
  out = {};
  std::vector<std::string> passed_over;
  for (std::int32_t version = p.version ? p.version : DELTAREF_NEWEST; version >= 1; --version) {
    deltaref_gpu_plan_t candidate{};
    const std::string why_not = obstacle(version, p, device, candidate);
    if (why_not.empty()) {
      out = candidate;
      std::string reason = kVersions[version];
      add(reason, "; not newer: ", passed_over, sizeof out.reason - 1);
      std::snprintf(out.reason, sizeof out.reason, "%s", reason.c_str());
      return {};
    }
    if (p.version) return {DELTAREF_UNSUPPORTED, why_not + "; ask for version 0 to get the newest that fits"};
    if (std::ranges::find(passed_over, why_not) == passed_over.end()) passed_over.push_back(why_not);
  }
  Refusal none{DELTAREF_UNSUPPORTED, ""};
  add(none.sentence, "", passed_over, std::string::npos);
  return none;
}

namespace {
std::string& last_sentence() {
  thread_local std::string sentence;
  return sentence;
}
}  // namespace

deltaref_status returned(const Refusal& r) {
  last_sentence() = r.sentence;
  return r.status;
}

}  // namespace delta::gpu

extern "C" {

deltaref_status deltaref_gpu_plan(const deltaref_gpu_problem* problem, const deltaref_gpu_device_t* device,
                                  deltaref_gpu_plan_t* plan) {
  using namespace delta::gpu;
  if (!problem || !device || !plan) return returned({DELTAREF_INVALID_ARGUMENT, "problem, device or plan is NULL"});
  return returned(delta::gpu::plan(*problem, *device, *plan));
}

const char* deltaref_gpu_last_error(void) { return delta::gpu::last_sentence().c_str(); }

const char* deltaref_gpu_status_text(deltaref_status status) {
  static const char* const texts[] = {"ok",
                                      "invalid argument",
                                      "no kernel serves this problem",
                                      "no GPU to use",
                                      "the workspace does not do",
                                      "the CUDA runtime reported an error"};
  return status >= 0 && status < std::ssize(texts) ? texts[status] : "unknown status";
}

const char* deltaref_gpu_rule_name(int32_t rule) {
  return rule >= 0 && rule < std::ssize(delta::gpu::kRules) ? delta::gpu::kRules[rule] : "unknown rule";
}

const char* deltaref_gpu_version_name(int32_t version) {
  return version >= 0 && version < std::ssize(delta::gpu::kVersions) ? delta::gpu::kVersions[version]
                                                                     : "unknown version";
}

}  // extern "C"
