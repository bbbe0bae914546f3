// SPDX-License-Identifier: Apache-2.0
#include "checks/vectors/vectors.hpp"

#include <cstdio>

#include "checks/program/options.hpp"

namespace delta {

int vectors_command(const VectorsOptions& options) {
  const bool write = !options.out.empty();
  if (!write && options.check.empty())
    throw UsageError("vectors: expected --out DIR, to write them, or --check DIR, to hold them against their manifest");
  const std::vector<VectorFile> files = write ? write_vectors(options.out) : check_vectors(options.check);
  std::size_t bytes = 0, bad = 0;
  for (const VectorFile& f : files) {
    bytes += f.bytes, bad += !f.problem.empty();
    std::printf("%-7s %8zu  %s%s%s\n",
                write               ? "wrote"
                : f.problem.empty() ? "as made"
                                    : "FAILED",
                f.bytes, printable(f.name).c_str(), f.problem.empty() ? "" : ": ", f.problem.c_str());
  }
  std::printf("%zu vectors, %.1f MB, version %d%s\n", files.size(), static_cast<double>(bytes) / 1e6, kVectorsVersion,
              bad ? ", NOT as their manifest says" : "");
  if (files.empty()) std::fputs("deltaref: the manifest names no file, which is a failure\n", stderr);
  return files.empty() || bad ? 1 : 0;
}

}  // namespace delta
