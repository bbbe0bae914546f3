// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdexcept>
#include <string>

#include "gpu/deltaref_gpu.h"

namespace delta::gpu {

/// A status other than DELTAREF_OK, with its sentence.
struct Error : std::runtime_error {
  deltaref_status status;
  explicit Error(deltaref_status s)
      : std::runtime_error(std::string(deltaref_gpu_status_text(s)) + ": " + deltaref_gpu_last_error()), status(s) {}
};

inline void require(deltaref_status status) {
  if (status != DELTAREF_OK) throw Error(status);
}

/// A contiguous [B, T, heads, width].
inline deltaref_tensor contiguous(void* data, std::int64_t T, std::int64_t heads, std::int64_t width) {
  return {data, T * heads * width, heads * width, width};
}

inline deltaref_gpu_device_t device() {
  deltaref_gpu_device_t d{};
  require(deltaref_gpu_device(&d, nullptr, 0));
  return d;
}

inline deltaref_gpu_plan_t plan(const deltaref_gpu_problem& problem, const deltaref_gpu_device_t& on) {
  deltaref_gpu_plan_t p{};
  require(deltaref_gpu_plan(&problem, &on, &p));
  return p;
}

inline void run(const deltaref_gpu_problem& problem, void* workspace, std::size_t size, void* stream = nullptr) {
  require(deltaref_gpu_run(&problem, workspace, size, stream));
}

}  // namespace delta::gpu
