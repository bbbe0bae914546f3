// SPDX-License-Identifier: Apache-2.0
// libFuzzer: whatever the bytes are, the readers either return tensors that lie within them or throw UsageError.
#include <cstdlib>

#include "checks/dump/dump.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes{reinterpret_cast<const std::byte*>(data), size};
  for (const bool zip : {false, true}) try {
      const delta::Dump d = zip ? delta::read_npz(bytes, "input") : delta::read_safetensors(bytes, "input");
      double sum = 0;
      for (const auto& [name, t] : d.tensors) {
        if (delta::elements(t.shape) != t.size()) std::abort();
        for (std::int64_t i = 0; i < t.size(); ++i) sum += t.at(i);
      }
      volatile double keep = sum;
      (void)keep;
    } catch (const delta::UsageError&) {
    }
  return 0;
}
