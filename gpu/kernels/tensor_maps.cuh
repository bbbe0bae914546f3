// SPDX-License-Identifier: Apache-2.0
// How q, k and v are described to the copy engine.
#pragma once
#include "gpu/kernels/hopper.cuh"

namespace delta::gpu {

/// Where the copy engine finds q, k and v.
struct Maps {
  CUtensorMap q, k, v;
};

/// The tensor [B, T, heads, d] in boxes of 64 channels x 64 tokens of a head.
inline cudaError_t describe(CUtensorMap& map, const Rows& x, deltaref_dtype dtype, std::int64_t B, std::int64_t T,
                            int heads, int d) {
  static const auto encode = [] {
    void* f = nullptr;
    auto found = cudaDriverEntryPointSymbolNotFound;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(f) : nullptr;
  }();
  if (!encode) return cudaErrorNotSupported;
  const auto extent = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const auto stride = [&](std::int64_t elements, std::int64_t n) { return extent(n > 1 ? 2 * elements : 2 * d); };
  const cuuint64_t sizes[] = {extent(d), extent(heads), extent(T), extent(B)};
  const cuuint64_t strides[] = {stride(x.stride_h, heads), stride(x.stride_t, T), stride(x.stride_b, B)};
  const cuuint32_t box[] = {64, 1, 64, 1}, steps[] = {1, 1, 1, 1};
  const CUresult result =
      encode(&map, dtype == DELTAREF_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
             const_cast<void*>(x.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/// All three.
inline cudaError_t describe(Maps& maps, const Arguments& a, deltaref_dtype dtype) {
  const std::int64_t B = a.offsets ? 1 : a.N;
  if (a.T == 0 || !a.q.data || !a.k.data || !a.v.data) return cudaSuccess;
  cudaError_t error = describe(maps.q, a.q, dtype, B, a.T, a.H, a.d_k);
  if (error == cudaSuccess) error = describe(maps.k, a.k, dtype, B, a.T, a.H, a.d_k);
  if (error == cudaSuccess) error = describe(maps.v, a.v, dtype, B, a.T, a.HV, a.d_v);
  return error;
}

}  // namespace delta::gpu
