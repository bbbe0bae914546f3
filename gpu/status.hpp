// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "gpu/plan.hpp"

namespace delta::gpu {

/// Keeps the sentence for deltaref_gpu_last_error() and returns the status.
deltaref_status returned(const Refusal& r);

/// What to say where nothing can run.
inline std::string no_device_sentence(bool driver) {
  return driver ? "no NVIDIA GPU is visible here; the CPU path needs none"
                : "no NVIDIA driver here (or one older than this program's CUDA runtime); the CPU path needs none";
}

}  // namespace delta::gpu
