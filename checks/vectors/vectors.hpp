// SPDX-License-Identifier: Apache-2.0
// Test vectors: problems with their exact outputs, gradients and intermediates, for those who cannot link the library.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checks/dump/dump.hpp"

namespace delta {

/// Which bits the vectors have. A change of any bit of any file is a new version.
inline constexpr int kVectorsVersion = 1;

/// One file of the set.
struct Vector {
  std::string_view name, rule, family;
  std::string_view size;   ///< as `Size::parse` takes it; its C is the chunk length of the intermediates
  std::string_view why;    ///< what it is there to show
  bool kv = true;          ///< states stored [d_k, d_v]
  bool log_gate = false;   ///< the decay is given as g = ln alpha
  double l2norm_eps = -1;  ///< not negative: q and k are to be brought to unit length with that eps
  std::uint64_t seed = 1;
};

/// The set, in the order of the manifest.
std::span<const Vector> vectors();

/// The vector as a dump whose o, final_state and gradients are the exact numbers rounded to fp64.
/// All of it is integer arithmetic with 168 bits, but for the drawing of the inputs, which are rounded to 8 bits: the
/// same bits on every machine. \throws std::logic_error if two forms round differently somewhere
Dump make_vector(const Vector& v);

/// A file that was written, or looked at again.
struct VectorFile {
  std::string name;
  std::size_t bytes = 0;
  std::string problem;  ///< empty: the file is what the manifest says
};

/// Writes every vector and manifest.json. \throws UsageError
std::vector<VectorFile> write_vectors(const std::string& directory);

/// Holds the files of a directory against its manifest. \throws UsageError if there is none that can be read
std::vector<VectorFile> check_vectors(const std::string& directory);

}  // namespace delta
