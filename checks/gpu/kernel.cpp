// SPDX-License-Identifier: Apache-2.0
#include "checks/gpu/kernel.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "checks/core/families.hpp"

namespace delta::gpu {
namespace {

/// Memory that is freed stays with the program: thousands of small problems ask for it again.
[[maybe_unused]] const bool kept = [] {
  cudaMemPool_t pool{};
  std::uint64_t all = UINT64_MAX;
  return cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess &&
         cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all) == cudaSuccess;
}();

void require_cuda(cudaError_t e) {
  if (e != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(e));
}

/// Device memory with a guard zone on both sides, filled with one byte.
class Buffer {
 public:
  Buffer(std::size_t bytes, unsigned char fill) : bytes_(bytes), fill_(fill) {
    require_cuda(cudaMallocAsync(&base_, bytes + 2 * kGuard, nullptr));
    require_cuda(cudaMemset(base_, fill, bytes + 2 * kGuard));
  }
  ~Buffer() { cudaFreeAsync(base_, nullptr); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return static_cast<unsigned char*>(base_) + kGuard; }
  void upload(const std::vector<unsigned char>& x) {
    require_cuda(cudaMemcpy(data(), x.data(), x.size(), cudaMemcpyHostToDevice));
  }
  std::vector<unsigned char> download() const {
    std::vector<unsigned char> x(bytes_);
    require_cuda(cudaMemcpy(x.data(), data(), bytes_, cudaMemcpyDeviceToHost));
    return x;
  }
  bool guards_hold() const {
    std::array<unsigned char, 2 * kGuard> x;
    require_cuda(cudaMemcpy(x.data(), base_, kGuard, cudaMemcpyDeviceToHost));
    require_cuda(cudaMemcpy(x.data() + kGuard, static_cast<unsigned char*>(base_) + kGuard + bytes_, kGuard,
                            cudaMemcpyDeviceToHost));
    return std::ranges::all_of(x, [&](unsigned char byte) { return byte == fill_; });
  }

 private:
  static constexpr std::size_t kGuard = 1024;
  void* base_ = nullptr;
  std::size_t bytes_;
  unsigned char fill_;
};

std::size_t size_of(std::int32_t dtype) { return dtype == DELTAREF_FP64 ? 8 : dtype == DELTAREF_FP32 ? 4 : 2; }
std::int32_t wide_type(std::int32_t dtype) { return dtype == DELTAREF_FP64 ? DELTAREF_FP64 : DELTAREF_FP32; }

void encode(double x, std::int32_t dtype, unsigned char* to) {
  auto put = [&](auto y) { std::memcpy(to, &y, sizeof y); };
  switch (dtype) {
    case DELTAREF_FP64:
      return put(x);
    case DELTAREF_FP32:
      return put(static_cast<float>(x));
    case DELTAREF_BF16:
      return put(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(kBf16.round(x))) >> 16));
    default:
      return put(Eigen::half(static_cast<float>(x)).x);
  }
}
double decode(std::int32_t dtype, const unsigned char* from) {
  auto get = [&]<class T>(T y) { return std::memcpy(&y, from, sizeof y), y; };
  switch (dtype) {
    case DELTAREF_FP64:
      return get(double{});
    case DELTAREF_FP32:
      return get(float{});
    case DELTAREF_BF16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(get(std::uint16_t{})) << 16);
    default:
      return static_cast<float>(Eigen::half(Eigen::half_impl::raw_uint16_to_half(get(std::uint16_t{}))));
  }
}

/// A tensor [B, T, heads, width] on the device, its rows `pad` elements further apart than they must be.
struct OnDevice {
  std::int64_t B, T, heads, width, pad;
  std::int32_t dtype;
  Buffer memory;

  OnDevice(const Tensor<double>& x, std::int32_t type, std::int64_t padding, unsigned char fill)
      : B(x.B),
        T(x.tokens),
        heads(x.heads),
        width(x.rows * x.cols),
        pad(padding),
        dtype(type),
        memory(static_cast<std::size_t>(B * T * heads * (width + pad)) * size_of(type), fill) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(B * T * heads * (width + pad)) * size_of(type), fill);
    for (std::int64_t r = 0; r < B * T * heads; ++r)
      for (std::int64_t i = 0; i < width; ++i)
        encode(x.data[static_cast<std::size_t>(r * width + i)], type,
               &bytes[static_cast<std::size_t>(r * (width + pad) + i) * size_of(type)]);
    memory.upload(bytes);
  }
  deltaref_tensor tensor() const {
    const std::int64_t row = width + pad;
    return {memory.data(), T * heads * row, heads * row, row};
  }
};

}  // namespace

std::int32_t rule_number(const RuleInfo& rule) {
  for (std::int32_t r = 0; r <= DELTAREF_KDA; ++r)
    if (rule.id == deltaref_gpu_rule_name(r)) return r;
  return -1;
}

Answer run_on_device(const RuleInfo& rule, const Problem<double>& p, const Call& call) {
  const Shape& z = p.shape;
  const std::int32_t wide = wide_type(call.dtype);
  const std::int64_t pad = call.padded ? 8 : 0;
  std::vector<std::unique_ptr<OnDevice>> held;
  auto put = [&](const Tensor<double>& x, std::int32_t type) -> deltaref_tensor {
    if (x.empty()) return {};
    held.push_back(std::make_unique<OnDevice>(x, type, pad, 0xff));
    return held.back()->tensor();
  };
  Tensor<double> gate = p.alpha;
  if (call.log_gate)
    for (double& a : gate.data) a = std::log(a);
  Tensor<double> nothing(z.B, z.T, z.HV, z.d_v);

  deltaref_gpu_problem d{};
  d.rule = rule_number(rule), d.dtype = call.dtype, d.gate = call.log_gate ? DELTAREF_LOG_DECAY : DELTAREF_DECAY;
  d.state_layout = call.layout, d.version = call.version, d.qk_l2norm = call.l2norm, d.rows = call.rows;
  d.segments = call.segments;
  d.B = z.B, d.T = z.T, d.H = z.H, d.HV = z.HV, d.d_k = z.d_k, d.d_v = z.d_v;
  const std::vector<std::int64_t> offsets(z.offsets.begin(), z.offsets.end());
  if (!offsets.empty()) d.cu_seqlens = offsets.data(), d.sequences = static_cast<std::int64_t>(offsets.size()) - 1;
  d.scale = p.scale, d.l2norm_eps = 1e-6;
  d.q = put(p.q, call.dtype), d.k = put(p.k, call.dtype), d.v = put(p.v, call.dtype);
  d.g = put(gate, wide), d.beta = put(p.beta, wide), d.lambda = put(p.lambda, wide);

  const std::size_t state_size = static_cast<std::size_t>(z.d_k * z.d_v),
                    lanes = static_cast<std::size_t>(z.sequences() * z.HV);
  const std::size_t state_bytes = lanes * state_size * size_of(wide);
  auto element = [&](std::size_t lane, Index i, Index j) {
    return lane * state_size +
           static_cast<std::size_t>(call.layout == DELTAREF_STATE_VK ? i * z.d_k + j : j * z.d_v + i);
  };
  Buffer initial(state_bytes, 0xff), final_state(state_bytes, call.fill);
  if (!p.S0.empty()) {
    std::vector<unsigned char> bytes(state_bytes);
    for (std::size_t lane = 0; lane < lanes; ++lane)
      for (Index i = 0; i < z.d_v; ++i)
        for (Index j = 0; j < z.d_k; ++j) encode(p.S0[lane](i, j), wide, &bytes[element(lane, i, j) * size_of(wide)]);
    initial.upload(bytes);
    d.initial_state = initial.data();
  }
  d.final_state = final_state.data();
  const std::size_t row = static_cast<std::size_t>(z.d_v + pad) * size_of(call.dtype);
  Buffer o(static_cast<std::size_t>(z.B * z.T * z.HV) * row, call.fill);
  d.o = {o.data(), z.T * z.HV * (z.d_v + pad), z.HV * (z.d_v + pad), z.d_v + pad};

  Answer answer;
  answer.plan = plan(d, device());
  const auto slots = static_cast<std::size_t>(answer.plan.slots * z.HV),
             C = static_cast<std::size_t>(answer.plan.chunk);
  const auto d_k = static_cast<std::size_t>(z.d_k), d_v = static_cast<std::size_t>(z.d_v);
  std::map<std::string, std::unique_ptr<Buffer>> traced;
  auto want = [&](const char* name, std::size_t size) {
    traced[name] = std::make_unique<Buffer>(size * size_of(wide), 0xff);
    return traced[name]->data();
  };
  if (call.trace && answer.plan.version == DELTAREF_V1) {
    const auto tokens = static_cast<std::size_t>(z.B * z.T * z.HV);
    d.trace.e_prior = want("e_prior", tokens * d_v), d.trace.e_posterior = want("e_posterior", tokens * d_v);
    d.trace.states = want("states", tokens * d_v * d_k);
  } else if (call.trace && answer.plan.version >= DELTAREF_V3) {
    if (rule.forget != Forget::per_channel) d.trace.gamma = want("gamma", slots * C);
    d.trace.L_g = want("L_g", slots * C * C), d.trace.inverse = want("inverse", slots * C * C);
    if (answer.plan.version < DELTAREF_V5)
      d.trace.W = want("W", slots * C * d_k), d.trace.U = want("U", slots * C * d_v);
    d.trace.Z = want("Z", slots * C * d_v), d.trace.S = want("S", slots * d_v * d_k);
  }
  Buffer workspace(answer.plan.workspace, call.fill);
  run(d, workspace.data(), answer.plan.workspace);
  require_cuda(cudaDeviceSynchronize());

  answer.untouched = o.guards_hold() && final_state.guards_hold() && workspace.guards_hold();
  const std::vector<unsigned char> o_bytes = o.download(), s_bytes = final_state.download();
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const Index n = static_cast<Index>(lane) / z.HV, h = static_cast<Index>(lane) % z.HV;
    Output<double> out{Mat<double>(z.length(n), z.d_v), Mat<double>(z.d_v, z.d_k)};
    for (Index t = 0; t < z.length(n); ++t)
      for (Index i = 0; i < z.d_v; ++i) {
        const auto r = static_cast<std::size_t>((z.batch(n) * z.T + z.begin(n) + t) * z.HV + h);
        out.O(t, i) = decode(call.dtype, &o_bytes[r * row + static_cast<std::size_t>(i) * size_of(call.dtype)]);
      }
    for (Index i = 0; i < z.d_v; ++i)
      for (Index j = 0; j < z.d_k; ++j) out.S(i, j) = decode(wide, &s_bytes[element(lane, i, j) * size_of(wide)]);
    auto append = [&](const Mat<double>& M) {
      answer.bits.append(reinterpret_cast<const char*>(M.data()), static_cast<std::size_t>(M.size()) * sizeof(double));
    };
    append(out.O), append(out.S);
    answer.result.push_back(std::move(out));
  }
  // Slack rows and the gaps between rows belong to the caller.
  const Index end = z.offsets.empty() ? z.T : z.offsets.back();
  for (Index r = 0; r < z.B * z.T * z.HV; ++r)
    for (std::size_t b = (z.offsets.empty() || r / z.HV < end ? d_v * size_of(call.dtype) : 0); b < row; ++b)
      answer.untouched = answer.untouched && o_bytes[static_cast<std::size_t>(r) * row + b] == call.fill;

  for (const auto& [name, buffer] : traced) {
    answer.untouched = answer.untouched && buffer->guards_hold();
    const std::vector<unsigned char> bytes = buffer->download();
    std::vector<double>& x = answer.traces[name];
    for (std::size_t i = 0; i < bytes.size(); i += size_of(wide)) x.push_back(decode(wide, &bytes[i]));
  }
  return answer;
}

std::string far_offsets(std::int32_t version, bool& same) {
  constexpr std::int64_t B = 16, T = 17477, H = 64, d = 128, row = H * d;  // B T H d = 2^31 + 2 rows and some
  std::size_t free = 0, total = 0;
  require_cuda(cudaMemGetInfo(&free, &total));
  if (free < std::size_t{40} << 30) return "needs 40 GB of device memory";
  deltaref_gpu_problem big{}, one{};
  big.rule = DELTAREF_GATED_DELTA, big.dtype = DELTAREF_BF16, big.gate = DELTAREF_DECAY, big.version = version;
  big.B = B, big.T = T, big.H = big.HV = H, big.d_k = big.d_v = d, big.scale = 0.125;
  if (version == DELTAREF_V6) big.segments = 3;
  one = big, one.B = one.H = one.HV = 1;

  const Problem<double> p = draw(find_rule("gated_delta")->info, *find_family("gate_half"),
                                 Size({.B = 1, .T = T, .H = 1, .HV = 1, .d_k = d, .d_v = d}, 64), 5);
  auto sample = [&](const Tensor<double>& x, std::int32_t type) { return std::make_unique<OnDevice>(x, type, 0, 0); };
  const auto q = sample(p.q, DELTAREF_BF16), k = sample(p.k, DELTAREF_BF16), v = sample(p.v, DELTAREF_BF16);
  const auto alpha = sample(p.alpha, DELTAREF_FP32), beta = sample(p.beta, DELTAREF_FP32);
  std::vector<std::unique_ptr<Buffer>> memory;
  auto spread = [&](const OnDevice& x, std::int64_t width,
                    std::size_t size) -> deltaref_tensor {  // zeros, and the sample in the last lane
    memory.push_back(std::make_unique<Buffer>(static_cast<std::size_t>(B * T * H * width) * size, 0));
    auto* const to = static_cast<unsigned char*>(memory.back()->data()) +
                     static_cast<std::size_t>((B - 1) * T * H + (H - 1)) * static_cast<std::size_t>(width) * size;
    const std::size_t bytes = static_cast<std::size_t>(width) * size;
    require_cuda(cudaMemcpy2D(to, bytes * H, x.memory.data(), bytes, bytes, T, cudaMemcpyDeviceToDevice));
    return {memory.back()->data(), T * H * width, H * width, width};
  };
  big.q = spread(*q, d, 2), big.k = spread(*k, d, 2), big.v = spread(*v, d, 2);
  big.g = spread(*alpha, 1, 4), big.beta = spread(*beta, 1, 4);
  one.q = q->tensor(), one.k = k->tensor(), one.v = v->tensor(), one.g = alpha->tensor(), one.beta = beta->tensor();
  Buffer o_big(static_cast<std::size_t>(B * T * row) * 2, 0xff), o_one(static_cast<std::size_t>(T * d) * 2, 0xff);
  big.o = {o_big.data(), T * row, row, d}, one.o = {o_one.data(), T * d, d, d};
  for (const deltaref_gpu_problem* problem : {&big, &one}) {
    const deltaref_gpu_plan_t todo = plan(*problem, device());
    Buffer workspace(todo.workspace, 0xff);
    run(*problem, workspace.data(), todo.workspace);
    require_cuda(cudaDeviceSynchronize());
  }
  std::vector<unsigned char> last(static_cast<std::size_t>(T * d) * 2);
  require_cuda(cudaMemcpy2D(
      last.data(), d * 2,
      static_cast<unsigned char*>(o_big.data()) + static_cast<std::size_t>((B - 1) * T * H + (H - 1)) * d * 2, row * 2,
      d * 2, T, cudaMemcpyDeviceToHost));
  same = last == o_one.download();
  return "";
}

}  // namespace delta::gpu
