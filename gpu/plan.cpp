// SPDX-License-Identifier: Apache-2.0
// What is decided before anything is launched: is the problem sound, which kernel serves it, how much memory it needs.
// Plain C++: it is compiled and tested without CUDA.
#include "gpu/plan.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "gpu/status.hpp"

namespace delta::gpu {
namespace {

const char* const kRules[] = {"linear", "retnet", "mamba2", "delta", "gated_delta", "q_delta", "kda"};
const char* const kVersions[] = {"auto",
                                 "v1 (token by token)",
                                 "v2 (the state in registers)",
                                 "v3 (the chunk form in shared memory)",
                                 "v4 (the chunk form on tensor cores)",
                                 "v5 (the chunk form with Hopper's instructions)"};

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

bool chunk_trace(const deltaref_trace& t) { return t.gamma || t.L_g || t.inverse || t.W || t.U || t.Z || t.S; }
bool token_trace(const deltaref_trace& t) { return t.e_prior || t.e_posterior || t.states; }

/// Why that version cannot serve the problem on that device; empty: it can, and `out` is filled.
std::string obstacle(std::int32_t version, const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device,
                     deltaref_gpu_plan_t& out) {
  const bool wide = p.dtype == DELTAREF_FP64, per_channel = p.rule == DELTAREF_KDA;
  const std::int64_t size = wide ? 8 : 4;
  if (device.compute_capability < 80)
    return "the device has compute capability " + number(device.compute_capability / 10) + "." +
           number(device.compute_capability % 10) + ", 8.0 or newer is needed";
  if (token_trace(p.trace) && version != DELTAREF_V1) return "per-token traces are written by v1 only";
  if (chunk_trace(p.trace) && version < DELTAREF_V3) return "chunk traces are written by v3 and newer";
  out.version = version;
  out.chunk = 1;
  out.workspace = 0;
  switch (version) {
    case DELTAREF_V1:
      out.rows = 64;
      out.workspace = static_cast<std::uint64_t>(sequences(p) * p.HV * p.d_k * p.d_v * size);
      break;
    case DELTAREF_V2:
      out.rows = 16;
      break;
    case DELTAREF_V3:
      if (per_channel) return "v3 takes a scalar decay, kda has one per channel";
      out.chunk = 64;
      while (out.chunk >= 16 && chunk_form_shared(out.chunk, p.d_k, size) > device.shared_memory) out.chunk /= 2;
      if (out.chunk < 16)
        return "even a chunk of 16 needs " + number(chunk_form_shared(16, p.d_k, size)) +
               " bytes of shared memory and a block has " + number(device.shared_memory);
      out.rows = kTile;
      break;
    case DELTAREF_V4: {
      if (p.dtype > DELTAREF_FP16) return "v4 takes bf16 and fp16";
      if ((p.d_k != 64 && p.d_k != 128) || (p.d_v != 64 && p.d_v != 128))
        return "v4 has d_k and d_v of 64 and 128, got " + number(p.d_k) + " and " + number(p.d_v);
      if (!aligned(p.q) || !aligned(p.k) || !aligned(p.v) || !aligned(p.o))
        return "v4 needs q, k, v and o aligned to 16 bytes with strides that are multiples of 8 elements";
      if (per_channel && p.trace.gamma) return "kda has a gamma per channel, none per token";
      // As many rows of S a block as still leave a block for most multiprocessors: what a chunk needs is read once a
      // block.
      const std::int64_t heads = sequences(p) * p.HV;
      auto needs = [&](int stages) { return chain_shared(p.d_k, out.rows, per_channel, stages); };
      out.rows = p.rows ? p.rows : 64;
      while (!p.rows && out.rows > 16 &&
             (heads * (p.d_v / out.rows) * 4 < device.multiprocessors * 3 || needs(2) > device.shared_memory))
        out.rows /= 2;
      if (needs(2) > device.shared_memory)
        return "v4 needs " + number(needs(2)) + " bytes of shared memory and a block has " +
               number(device.shared_memory);
      out.stages = 4;
      while (needs(out.stages) > device.shared_memory) --out.stages;
      out.chunk = kChunk;
      out.workspace =
          static_cast<std::uint64_t>(slots(p, kChunk) * p.HV * tensor_core_layout(p.d_k, per_channel).total());
      break;
    }
    case DELTAREF_V5: {
      if (device.compute_capability != 90)
        return "v5 is for compute capability 9.0, the device has " + number(device.compute_capability / 10) + "." +
               number(device.compute_capability % 10);
      if (per_channel) return "v5 takes a scalar decay, kda has one per channel";
      if (p.dtype > DELTAREF_FP16) return "v5 takes bf16 and fp16";
      if ((p.d_k != 64 && p.d_k != 128) || (p.d_v != 64 && p.d_v != 128))
        return "v5 has d_k and d_v of 64 and 128, got " + number(p.d_k) + " and " + number(p.d_v);
      if (!aligned(p.q) || !aligned(p.k) || !aligned(p.v) || !aligned(p.o))
        return "v5 needs q, k, v and o aligned to 16 bytes with strides that are multiples of 8 elements";
      if (!walkable(p.q, p.B, p.T, p.H) || !walkable(p.k, p.B, p.T, p.H) || !walkable(p.v, p.B, p.T, p.HV))
        return "v5 needs q, k and v with positive strides";
      if (p.T >= std::int64_t{1} << 31 || slots(p, kChunk) * p.HV >= std::int64_t{1} << 31)
        return "v5 counts tokens and chunks in 32 bits";
      if (p.trace.W || p.trace.U) return "v5 computes neither W nor U~";
      // A cluster is one block that carries all rows of S and one that prepares; where heads are few, twice as many of
      // both. Clusters of four leave some multiprocessors idle.
      const std::int64_t lanes = sequences(p) * p.HV, all = device.multiprocessors;
      if (p.rows && (p.rows < 64 || p.rows > p.d_v)) return "a block of v5 owns 64 or 128 rows of S";
      const bool few = p.d_v == 128 && lanes <= all / 4 - 3;
      out.rows = p.rows ? p.rows : few ? 64 : static_cast<std::int32_t>(p.d_v);
      out.chains = out.producers = static_cast<std::int32_t>(p.d_v / out.rows);
      out.clusters = static_cast<std::int32_t>(std::min(lanes, all / (2 * out.chains)));
      out.stages = 4;
      while (hopper_shared(p.d_k, out.rows, out.stages) > device.shared_memory) --out.stages;
      if (out.stages < 2)
        return "v5 needs " + number(hopper_shared(p.d_k, out.rows, 2)) + " bytes of shared memory and a block has " +
               number(device.shared_memory);
      out.chunk = kChunk;
      break;
    }
    default:
      return "there is no such version";
  }
  out.slots = slots(p, out.chunk);
  if (p.cu_seqlens)  // the offsets travel in front of the workspace
    out.workspace += static_cast<std::uint64_t>((8 * (p.sequences + 1) + 255) / 256 * 256);
  return "";
}

}  // namespace

std::int64_t sequences(const deltaref_gpu_problem& p) { return p.cu_seqlens ? p.sequences : p.B; }
std::int64_t tokens(const deltaref_gpu_problem& p) { return p.cu_seqlens ? p.cu_seqlens[p.sequences] : p.B * p.T; }
std::int64_t slots(const deltaref_gpu_problem& p, std::int64_t chunk) { return tokens(p) / chunk + sequences(p); }

std::int64_t chunk_form_shared(std::int64_t C, std::int64_t d_k, std::int64_t size) {
  // Q, K, W [C x d_k];  S [32 x d_k];  U~ [C x 32];  X K^T, Q K^T, H [C x C];  alpha, beta, lambda, gamma [C]
  return size * (3 * C * (d_k + 1) + kTile * (d_k + 1) + C * (kTile + 1) + 3 * C * (C + 1) + 4 * C);
}

namespace {
constexpr std::int64_t kBlockPairs = 10 * 1024;  ///< the blocks of N and their rests
}

TensorCoreLayout tensor_core_layout(std::int64_t d_k, bool per_channel) {
  return {.matrices = kBlockPairs + kChunk * kChunk * 2,
          .coefficients = 4 * (5 * kChunk + d_k),
          .keys = per_channel ? 3 * kChunk * d_k * 2 : 0};
}

std::int64_t chain_shared(std::int64_t d_k, std::int64_t rows, bool per_channel, int stages) {
  // A stage: K, Q (and K as it is written) [C x d_k], N and P [C x C], factors, V [C x rows]; then the exchange.
  const std::int64_t keys = (per_channel ? 3 : 2) * kChunk * d_k * 2, values = kChunk * rows * 2;
  const std::int64_t stage =
      keys + kBlockPairs + kChunk * kChunk * 2 + 4 * (5 * kChunk + (per_channel ? d_k : 4)) + values;
  return stages * stage + rows / 16 * 512 * (d_k / 16 + 16);
}

std::int64_t hopper_shared(std::int64_t d_k, std::int64_t rows, int stages) {
  // A chain: barriers and factors, o^T of a chunk, then in a stage K, Q, W [C x d_k], T and P [C x C], V [C x rows]. A
  // producer: three times K, Q and W, P, blocks of L and A, numbers.
  const std::int64_t keys = 2 * kChunk * d_k, values = 2 * kChunk * rows, square = 2 * kChunk * kChunk, KB = 1024;
  return std::max((2560 + values + KB - 1) / KB * KB + stages * (3 * keys + 2 * square + values),
                  KB + 3 * (3 * keys + square + 15 * KB));
}

Refusal check(const deltaref_gpu_problem& p) {
  if (!in(p.rule, 0, DELTAREF_KDA)) return invalid("rule: expected 0 (linear) to 6 (kda), got " + number(p.rule));
  if (!in(p.dtype, 0, DELTAREF_FP64)) return invalid("dtype: expected 0 (bf16) to 3 (fp64), got " + number(p.dtype));
  if (!in(p.gate, 0, 1)) return invalid("gate: expected 0 (log decay) or 1 (decay), got " + number(p.gate));
  if (!in(p.state_layout, 0, 1))
    return invalid("state_layout: expected 0 (kv) or 1 (vk), got " + number(p.state_layout));
  if (!in(p.version, 0, DELTAREF_V5)) return invalid("version: expected 0 (auto) to 5, got " + number(p.version));
  if (p.rows != 0 && p.rows != 16 && p.rows != 32 && p.rows != 64 && p.rows != 128)
    return invalid("rows: expected 0 (chosen), 16, 32, 64 or 128, got " + number(p.rows));
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
  std::string passed_over;
  for (std::int32_t version = p.version ? p.version : DELTAREF_V5; version >= 1; --version) {
    deltaref_gpu_plan_t candidate{};
    const std::string why_not = obstacle(version, p, device, candidate);
    if (why_not.empty()) {
      const std::string reason =
          std::string(kVersions[version]) + (passed_over.empty() ? "" : "; not newer: " + passed_over);
      out = candidate;
      std::snprintf(out.reason, sizeof out.reason, "%s", reason.c_str());
      return {};
    }
    if (p.version) return {DELTAREF_UNSUPPORTED, why_not + "; ask for version 0 to get the newest that fits"};
    if (passed_over.empty()) passed_over = why_not;
  }
  return {DELTAREF_UNSUPPORTED, passed_over};
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
