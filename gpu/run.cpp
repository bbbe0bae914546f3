// SPDX-License-Identifier: Apache-2.0
// The calls that touch a device: what it is, and launching on it. Compiled against the CUDA runtime.
#include <cuda_runtime.h>

#include <cstdio>

#include "gpu/kernels/launch.hpp"
#include "gpu/status.hpp"

namespace delta::gpu {
namespace {

Refusal from_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice)
    return {DELTAREF_NO_DEVICE, no_device_sentence(error == cudaErrorNoDevice)};
  return {DELTAREF_CUDA_ERROR, std::string(what) + ": " + cudaGetErrorString(error)};
}

Rows rows(const deltaref_tensor& x) { return {x.data, x.stride_b, x.stride_t, x.stride_h}; }

Refusal device_of(deltaref_gpu_device_t& d) {
  int count = 0, id = 0;
  if (Refusal r = from_cuda(cudaGetDeviceCount(&count), "counting the devices")) return r;
  if (count == 0) return {DELTAREF_NO_DEVICE, no_device_sentence(true)};
  if (Refusal r = from_cuda(cudaGetDevice(&id), "asking for the current device")) return r;
  int major = 0, minor = 0, processors = 0, shared = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, id);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, id);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, id);
  if (Refusal r = from_cuda(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, id),
                            "asking for the shared memory of a block"))
    return r;
  d = {10 * major + minor, processors, shared};
  return {};
}

Refusal run(const deltaref_gpu_problem& p, void* workspace, std::size_t size, cudaStream_t stream) {
  if (Refusal r = check(p)) return r;
  deltaref_gpu_device_t device{};
  if (Refusal r = device_of(device)) return r;
  deltaref_gpu_plan_t todo{};
  if (Refusal r = plan(p, device, todo)) return r;
  if (todo.workspace > 0 && (!workspace || size < todo.workspace || reinterpret_cast<std::uintptr_t>(workspace) % 256))
    return {DELTAREF_WORKSPACE, "expected " + std::to_string(todo.workspace) +
                                    " bytes of device memory aligned to 256, got " +
                                    (workspace ? std::to_string(size) + " bytes" : std::string("NULL")) +
                                    "; deltaref_gpu_plan says how much"};

  Arguments a{.q = rows(p.q),
              .k = rows(p.k),
              .v = rows(p.v),
              .o = rows(p.o),
              .g = rows(p.g),
              .beta = rows(p.beta),
              .lambda = rows(p.lambda),
              .offsets = nullptr,
              .N = sequences(p),
              .T = p.T,
              .H = static_cast<int>(p.H),
              .HV = static_cast<int>(p.HV),
              .d_k = static_cast<int>(p.d_k),
              .d_v = static_cast<int>(p.d_v),
              .reads_key = p.rule >= DELTAREF_DELTA,
              .per_channel = p.rule == DELTAREF_KDA,
              .gate_is_log = p.gate == DELTAREF_LOG_DECAY,
              .state_vk = p.state_layout == DELTAREF_STATE_VK,
              .l2norm = p.qk_l2norm != 0,
              .scale = p.scale,
              .eps = p.l2norm_eps,
              .initial_state = p.initial_state,
              .final_state = p.final_state,
              .workspace = workspace,
              .trace = {p.trace.e_prior, p.trace.e_posterior, p.trace.states, p.trace.gamma, p.trace.L_g,
                        p.trace.inverse, p.trace.W, p.trace.U, p.trace.Z, p.trace.S}};
  if (p.cu_seqlens) {
    const std::size_t bytes = 8 * static_cast<std::size_t>(p.sequences + 1), used = (bytes + 255) / 256 * 256;
    if (Refusal r = from_cuda(cudaMemcpyAsync(workspace, p.cu_seqlens, bytes, cudaMemcpyHostToDevice, stream),
                              "copying the offsets"))
      return r;
    a.offsets = static_cast<const std::int64_t*>(workspace);
    a.workspace = static_cast<unsigned char*>(workspace) + used;
  }
  using Launcher = cudaError_t(const Arguments&, deltaref_dtype, const deltaref_gpu_plan_t&, cudaStream_t);
  Launcher* const launchers[] = {launch_v1, launch_v2, launch_v3, a.per_channel ? launch_v4_kda : launch_v4,
                                 launch_v5, launch_v5, launch_v7};
  return from_cuda(launchers[todo.version - 1](a, static_cast<deltaref_dtype>(p.dtype), todo, stream),
                   deltaref_gpu_version_name(todo.version));
}

}  // namespace
}  // namespace delta::gpu

extern "C" {

deltaref_status deltaref_gpu_device(deltaref_gpu_device_t* device, char* text, size_t size) {
  deltaref_gpu_device_t d{};
  const delta::gpu::Refusal r = delta::gpu::device_of(d);
  if (device) *device = d;
  if (text && size) {
    cudaDeviceProp properties{};
    int id = 0;
    if (!r) cudaGetDevice(&id), cudaGetDeviceProperties(&properties, id);
    std::snprintf(text, size, "%s", r ? r.sentence.c_str() : properties.name);
  }
  return delta::gpu::returned(r);
}

deltaref_status deltaref_gpu_run(const deltaref_gpu_problem* problem, void* workspace, size_t size, void* stream) {
  if (!problem) return delta::gpu::returned({DELTAREF_INVALID_ARGUMENT, "problem is NULL"});
  return delta::gpu::returned(delta::gpu::run(*problem, workspace, size, static_cast<cudaStream_t>(stream)));
}

}  // extern "C"
