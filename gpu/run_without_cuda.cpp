// SPDX-License-Identifier: Apache-2.0
// The same calls where no CUDA compiler was found: the description is still checked, then a sentence says why not.
#include <cstdio>

#include "gpu/status.hpp"

namespace {
delta::gpu::Refusal no_cuda() {
  return {DELTAREF_NO_DEVICE,
          "this build has no CUDA kernels: put nvcc 12 or newer on PATH and configure again, or use the CPU path"};
}
}  // namespace

extern "C" {

deltaref_status deltaref_gpu_device(deltaref_gpu_device_t* device, char* text, size_t size) {
  if (device) *device = {};
  if (text && size) std::snprintf(text, size, "%s", no_cuda().sentence.c_str());
  return delta::gpu::returned(no_cuda());
}

deltaref_status deltaref_gpu_run(const deltaref_gpu_problem* problem, void*, size_t, void*) {
  if (!problem) return delta::gpu::returned({DELTAREF_INVALID_ARGUMENT, "problem is NULL"});
  if (const delta::gpu::Refusal r = delta::gpu::check(*problem)) return delta::gpu::returned(r);
  return delta::gpu::returned(no_cuda());
}

}  // extern "C"
