// SPDX-License-Identifier: Apache-2.0
// How q, k, v and o are described to the copy engine.
#pragma once
#include "gpu/kernels/hopper.cuh"

namespace delta::gpu {

/// Where the copy engine finds q, k and v.
struct Maps {
  CUtensorMap q, k, v;
};

/// And where it is to bring o.
struct AllMaps : Maps {
  CUtensorMap o;
};

/// How the copy engine is to walk a tensor [B, T, heads, d]: dimensions and strides, innermost first, and how much of
/// each it takes at a time.
template <int Rank> struct Boxes {
  cuuint64_t sizes[Rank], strides[Rank - 1];  ///< in numbers; in bytes, from the second on
  cuuint32_t box[Rank];
};
template <int Rank>
cudaError_t encode(CUtensorMap& map, const void* data, deltaref_dtype dtype, const Boxes<Rank>& boxes) {
  static const auto encode = [] {
    void* f = nullptr;
    auto found = cudaDriverEntryPointSymbolNotFound;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(f) : nullptr;
  }();
  if (!encode) return cudaErrorNotSupported;
  const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  const CUresult result =
      encode(&map, dtype == DELTAREF_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, Rank,
             const_cast<void*>(data), boxes.sizes, boxes.strides, boxes.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
/// 64 tokens of a head in tiles of 64 channels: one at a time, from any channel on (`load_tile`), or all
/// (`load_tiles`).
enum class Fetch { tile, tiles };
inline cudaError_t describe(CUtensorMap& map, const Rows& x, deltaref_dtype dtype, Fetch fetch, std::int64_t B,
                            std::int64_t T, int heads, int d) {
  const auto extent = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const auto stride = [&](std::int64_t elements, std::int64_t n) { return extent(n > 1 ? 2 * elements : 2 * d); };
  const cuuint64_t t = stride(x.stride_t, T), h = stride(x.stride_h, heads), b = stride(x.stride_b, B);
  const cuuint32_t number = static_cast<cuuint32_t>(d) / 64;
  if (fetch == Fetch::tile)
    return encode<4>(map, x.data, dtype, {{extent(d), extent(heads), extent(T), extent(B)}, {h, t, b}, {64, 1, 64, 1}});
  return encode<5>(map, x.data, dtype,
                   {{64, extent(T), number, extent(heads), extent(B)}, {t, 2 * 64, h, b}, {64, 64, number, 1, 1}});
}

/// All three, or all four.
inline cudaError_t describe(Maps& maps, const Arguments& a, deltaref_dtype dtype, Fetch fetch) {
  const std::int64_t B = a.offsets ? 1 : a.N;
  if (a.T == 0 || !a.q.data || !a.k.data || !a.v.data) return cudaSuccess;
  cudaError_t error = describe(maps.q, a.q, dtype, fetch, B, a.T, a.H, a.d_k);
  if (error == cudaSuccess) error = describe(maps.k, a.k, dtype, fetch, B, a.T, a.H, a.d_k);
  if (error == cudaSuccess) error = describe(maps.v, a.v, dtype, fetch, B, a.T, a.HV, a.d_v);
  return error;
}
inline cudaError_t describe(AllMaps& maps, const Arguments& a, deltaref_dtype dtype, Fetch fetch) {
  const cudaError_t error = describe(static_cast<Maps&>(maps), a, dtype, fetch);
  if (error != cudaSuccess || a.T == 0 || !a.o.data) return error;
  return describe(maps.o, a.o, dtype, fetch, a.offsets ? 1 : a.N, a.T, a.HV, a.d_v);
}

}  // namespace delta::gpu
