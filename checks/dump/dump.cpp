// SPDX-License-Identifier: Apache-2.0
#include "checks/dump/dump.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "reference/scalars/rounded.hpp"

namespace delta {
namespace {

static_assert(std::endian::native == std::endian::little, "dumps are little endian and are read in place");

template <class T> T load(const std::byte* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

double element(Dtype d, const std::byte* p) {
  switch (d) {
    case Dtype::bf16:
      return std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(p)} << 16);
    case Dtype::fp16:
      return Eigen::half_impl::half_to_float(Eigen::half_impl::raw_uint16_to_half(load<std::uint16_t>(p)));
    case Dtype::fp32:
      return load<float>(p);
    case Dtype::fp64:
      return load<double>(p);
    case Dtype::i32:
      return load<std::int32_t>(p);
    case Dtype::i64:
      return static_cast<double>(load<std::int64_t>(p));
  }
  return 0;
}

/// A file mapped into memory: tensors are read where they lie, and only the pages that are looked at are loaded.
std::shared_ptr<const std::byte> map_file(const std::string& path, std::size_t& size) {
  auto fail = [&](const char* what) {
    return UsageError(path + ": cannot " + what + ": " + std::strerror(errno) +
                      "; expected a .safetensors or .npz file");
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
  if (fd < 0) throw fail("open");
  struct Close {
    int fd;
    ~Close() { close(fd); }
  } const closer{fd};
  struct stat s {};
  if (fstat(fd, &s) != 0) throw fail("stat");
  if (!S_ISREG(s.st_mode)) throw UsageError(path + ": is not a regular file; expected a .safetensors or .npz file");
  size = static_cast<std::size_t>(s.st_size);
  if (size == 0) throw UsageError(path + ": is empty; expected a .safetensors or .npz file");
  void* p = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) throw fail("map");
  return {static_cast<const std::byte*>(p), [size](const std::byte* q) { munmap(const_cast<std::byte*>(q), size); }};
}

}  // namespace

void DumpTensor::read(std::int64_t first, std::span<double> out) const {
  const std::byte* p = bytes.data() + static_cast<std::size_t>(first) * size_of(dtype);
  for (double& x : out) x = element(dtype, p), p += size_of(dtype);
}

double DumpTensor::at(std::int64_t i) const {
  return element(dtype, bytes.data() + static_cast<std::size_t>(i) * size_of(dtype));
}

std::int64_t DumpTensor::integer(std::int64_t i) const {
  const std::byte* p = bytes.data() + static_cast<std::size_t>(i) * size_of(dtype);
  return dtype == Dtype::i32 ? load<std::int32_t>(p) : load<std::int64_t>(p);
}

const DumpTensor* Dump::find(const std::string& tensor) const {
  if (const auto why = unread.find(tensor); why != unread.end())
    throw UsageError(file + ": tensor '" + tensor + "' " + why->second);
  const auto it = tensors.find(tensor);
  return it == tensors.end() ? nullptr : &it->second;
}

std::vector<std::string> Dump::names() const {
  std::vector<std::string> all;
  for (const auto& [name, t] : tensors) all.push_back(name);
  for (const auto& [name, why] : unread) all.push_back(name);
  std::ranges::sort(all);
  return all;
}

void Dump::add(const std::string& tensor, Dtype dtype, std::vector<std::int64_t> shape,
               std::span<const double> values) {
  auto bytes = std::make_shared<std::vector<std::byte>>();
  auto put = [&](auto x) {
    const auto* p = reinterpret_cast<const std::byte*>(&x);
    bytes->insert(bytes->end(), p, p + sizeof x);
  };
  for (const double x : values) switch (dtype) {
      case Dtype::bf16:
        put(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(kBf16.round(x))) >> 16));
        break;
      case Dtype::fp16:
        put(Eigen::half(static_cast<float>(kFp16.round(x))).x);
        break;
      case Dtype::fp32:
        put(static_cast<float>(x));
        break;
      case Dtype::fp64:
        put(x);
        break;
      case Dtype::i32:
        put(static_cast<std::int32_t>(x));
        break;
      case Dtype::i64:
        put(static_cast<std::int64_t>(x));
        break;
    }
  tensors[tensor] = {dtype, std::move(shape), *bytes};
  storage.push_back(bytes);
}

std::int64_t elements(std::span<const std::int64_t> shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape)
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) return -1;
  return n;
}

std::string text(std::span<const std::int64_t> shape) {
  std::string s = "[";
  for (const std::int64_t d : shape) s += (s.size() > 1 ? "," : "") + std::to_string(d);
  return s + "]";
}

Dump read_dump(const std::string& path, const Wanted& wanted) {
  std::size_t size = 0;
  const std::shared_ptr<const std::byte> file = map_file(path, size);
  const std::span<const std::byte> bytes{file.get(), size};
  const bool zip = size >= 2 && std::memcmp(file.get(), "PK", 2) == 0;
  Dump d = zip ? read_npz(bytes, path, wanted) : read_safetensors(bytes, path);
  d.storage.push_back(file);
  return d;
}

}  // namespace delta
