// SPDX-License-Identifier: Apache-2.0
// The launchers, one a version. Each returns what the runtime says of its launches.
#pragma once
#include "gpu/kernels/arguments.cuh"
#include "gpu/plan.hpp"

namespace delta::gpu {

cudaError_t launch_v1(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan, cudaStream_t stream);
cudaError_t launch_v2(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan, cudaStream_t stream);
cudaError_t launch_v3(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan, cudaStream_t stream);
cudaError_t launch_v4(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan, cudaStream_t stream);
cudaError_t launch_v4_kda(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan,
                          cudaStream_t stream);
/// v5, and v6 where the plan has more than one segment.
cudaError_t launch_v5(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan, cudaStream_t stream);
cudaError_t launch_v7(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan, cudaStream_t stream);

/// Lets a kernel have all the shared memory that a block may have. Always the same number: two threads that launch the
/// same kernel at different sizes must not take it from each other.
template <class Kernel> cudaError_t allow_all_shared_memory(Kernel* kernel) {
  int id = 0, bytes = 0;
  cudaError_t error = cudaGetDevice(&id);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, id);
  cudaFuncAttributes attributes{};
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              bytes - static_cast<int>(attributes.sharedSizeBytes));
}

/// Calls f with the input type of that dtype and the type it accumulates in.
template <class F> cudaError_t with_types(deltaref_dtype dtype, F f) {
  switch (dtype) {
    case DELTAREF_BF16:
      return f(__nv_bfloat16{}, float{});
    case DELTAREF_FP16:
      return f(__half{}, float{});
    case DELTAREF_FP32:
      return f(float{}, float{});
    default:
      return f(double{}, double{});
  }
}

}  // namespace delta::gpu
