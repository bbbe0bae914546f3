// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>

#include "gpu/deltaref_gpu.h"

namespace delta::gpu {

/// A refusal: the status that is returned and the sentence that explains it.
struct Refusal {
  deltaref_status status = DELTAREF_OK;
  std::string sentence;
  explicit operator bool() const { return status != DELTAREF_OK; }
};

inline constexpr int kChunk = 64;  ///< C of the tensor-core kernels
inline constexpr int kTile = 32;   ///< value channels of a block of v3

/// Tokens that the chunk slots are counted over.
std::int64_t tokens(const deltaref_gpu_problem& p);
std::int64_t sequences(const deltaref_gpu_problem& p);
/// Chunk slots: chunk c of sequence n has slot begin(n) / C + n + c, unique for any lengths.
std::int64_t slots(const deltaref_gpu_problem& p, std::int64_t chunk);

/// Bytes of shared memory of a block of v3 with chunk length C; `size` is the size of one number.
std::int64_t chunk_form_shared(std::int64_t C, std::int64_t d_k, std::int64_t size);

/// Bytes of one chunk slot of one head in the workspace of v4, and of the shared memory of its serial stage.
struct TensorCoreLayout {
  std::int64_t matrices, coefficients, keys;  ///< N and P; the per-token factors; decayed copies of q and k (kda)
  std::int64_t total() const { return matrices + coefficients + keys; }
};
TensorCoreLayout tensor_core_layout(std::int64_t d_k, bool per_channel);
std::int64_t chain_shared(std::int64_t d_k, std::int64_t rows, bool per_channel, int stages);

/// Bytes of shared memory of a block of v5.
std::int64_t hopper_shared(std::int64_t d_k, std::int64_t rows, int stages);

/// Is the description sound? Says what is wrong otherwise.
Refusal check(const deltaref_gpu_problem& p);
/// Which kernel serves it on that device.
Refusal plan(const deltaref_gpu_problem& p, const deltaref_gpu_device_t& device, deltaref_gpu_plan_t& out);

}  // namespace delta::gpu
