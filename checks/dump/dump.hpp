// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checks/core/usage_error.hpp"

namespace delta {

/// The element types of a dump: floating point for tensors, integers for offsets.
enum class Dtype { bf16, fp16, fp32, fp64, i32, i64 };

constexpr std::string_view name(Dtype d) {
  constexpr std::string_view names[] = {"bf16", "fp16", "fp32", "fp64", "int32", "int64"};
  return names[static_cast<int>(d)];
}
constexpr std::size_t size_of(Dtype d) {
  constexpr std::size_t sizes[] = {2, 2, 4, 8, 4, 8};
  return sizes[static_cast<int>(d)];
}
constexpr bool is_integer(Dtype d) { return d == Dtype::i32 || d == Dtype::i64; }

/// One tensor of a dump, in C order, little endian; it views bytes that the dump owns.
struct DumpTensor {
  Dtype dtype = Dtype::fp32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;

  std::int64_t size() const { return static_cast<std::int64_t>(bytes.size() / size_of(dtype)); }
  /// Elements first, first + 1, ... as doubles, exactly (integers beyond 2^53 excepted: use `integer`).
  void read(std::int64_t first, std::span<double> out) const;
  double at(std::int64_t i) const;
  std::int64_t integer(std::int64_t i) const;
};

/// Named tensors and strings, as a file held them. Nothing here knows what they mean.
struct Dump {
  std::string file;  ///< how messages name it
  std::map<std::string, DumpTensor> tensors;
  std::map<std::string, std::string> unread;  ///< tensors that nobody wanted or whose type is not read, and why
  std::map<std::string, std::string> metadata;
  std::vector<std::shared_ptr<const void>> storage;  ///< keeps the bytes of the tensors alive

  /// The tensor of that name; nullptr if the file has none. \throws UsageError for one that was not read
  const DumpTensor* find(const std::string& tensor) const;
  /// Of every tensor in the file, read or not.
  std::vector<std::string> names() const;
  /// Adds a tensor, or replaces it; each value is rounded to the type.
  void add(const std::string& tensor, Dtype dtype, std::vector<std::int64_t> shape, std::span<const double> values);
};

/// Which tensors and strings of an archive will be looked at: nothing else is unpacked.
using Wanted = std::function<bool(std::string_view name)>;
inline bool everything(std::string_view) { return true; }

/// Reads a .safetensors or .npz file; which one is told from its first bytes. \throws UsageError
Dump read_dump(const std::string& path, const Wanted& wanted = everything);

/// The two formats over bytes in memory, which must outlive the dump. \throws UsageError
Dump read_safetensors(std::span<const std::byte> file, std::string name);
Dump read_npz(std::span<const std::byte> file, std::string name, const Wanted& wanted = everything);

/// The bytes of a safetensors file with these tensors and strings.
std::vector<std::byte> write_safetensors(const std::map<std::string, DumpTensor>& tensors,
                                         const std::map<std::string, std::string>& metadata);

/// The product of a shape. \return -1 if it has a negative length or does not fit
std::int64_t elements(std::span<const std::int64_t> shape);

std::string text(std::span<const std::int64_t> shape);  ///< "[1,150,2,32]"

}  // namespace delta
