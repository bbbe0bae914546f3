// SPDX-License-Identifier: Apache-2.0
// Small files of both formats, sound and damaged: for the tests of the readers and as seeds of the fuzzers.
#pragma once
#include <zlib.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace delta::corpus {

using File = std::vector<std::byte>;

inline void append(File& f, const void* p, std::size_t n) {
  const auto* b = static_cast<const std::byte*>(p);
  f.insert(f.end(), b, b + n);
}
template <class T> void append(File& f, T x) { append(f, &x, sizeof x); }
inline void append(File& f, const std::string& s) { append(f, s.data(), s.size()); }

/// A safetensors file with this header and so many bytes of data.
inline File safetensors(const std::string& header, std::size_t data) {
  File f;
  append(f, std::uint64_t{header.size()});
  append(f, header);
  f.resize(f.size() + data, std::byte{1});
  return f;
}

/// A .npy file, version 1, as numpy pads it.
inline std::string npy(const std::string& dictionary, const std::string& data, char version = 1) {
  std::string header = dictionary;
  const std::size_t fixed = version == 1 ? 10 : 12;
  header.resize((fixed + header.size() + 64) / 64 * 64 - fixed - 1, ' ');
  header += '\n';
  std::string s = "\x93NUMPY";
  s += version, s += '\0';
  const auto n = static_cast<std::uint32_t>(header.size());
  s.append(reinterpret_cast<const char*>(&n), version == 1 ? 2 : 4);
  return s + header + data;
}

inline std::string floats(std::initializer_list<float> x) {
  return {reinterpret_cast<const char*>(x.begin()), x.size() * sizeof(float)};
}

/// A zip archive of files, stored or deflated.
struct Zip {
  File bytes, directory;
  std::uint16_t count = 0;

  Zip& add(const std::string& name, const std::string& data, bool deflate = false) {
    std::string packed = data;
    if (deflate) {
      packed.resize(compressBound(data.size()) + 64);
      z_stream z{};
      deflateInit2(&z, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data())), z.avail_in = data.size();
      z.next_out = reinterpret_cast<Bytef*>(packed.data()), z.avail_out = packed.size();
      ::deflate(&z, Z_FINISH);
      packed.resize(z.total_out);
      deflateEnd(&z);
    }
    const auto offset = static_cast<std::uint32_t>(bytes.size());
    const auto crc = static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
    auto fields = [&](File& f) {
      append<std::uint16_t>(f, 20), append<std::uint16_t>(f, 0), append<std::uint16_t>(f, deflate ? 8 : 0);
      append<std::uint32_t>(f, 0), append(f, crc);
      append(f, static_cast<std::uint32_t>(packed.size())), append(f, static_cast<std::uint32_t>(data.size()));
      append(f, static_cast<std::uint16_t>(name.size())), append<std::uint16_t>(f, 0);
    };
    append<std::uint32_t>(bytes, 0x04034b50);
    fields(bytes);
    append(bytes, name), append(bytes, packed);
    append<std::uint32_t>(directory, 0x02014b50), append<std::uint16_t>(directory, 20);
    fields(directory);
    append<std::uint16_t>(directory, 0), append<std::uint16_t>(directory, 0), append<std::uint16_t>(directory, 0);
    append<std::uint32_t>(directory, 0), append(directory, offset), append(directory, name);
    ++count;
    return *this;
  }
  File file() const {
    File f = bytes;
    append(f, directory.data(), directory.size());
    append<std::uint32_t>(f, 0x06054b50), append<std::uint16_t>(f, 0), append<std::uint16_t>(f, 0);
    append(f, count), append(f, count), append(f, static_cast<std::uint32_t>(directory.size()));
    append(f, static_cast<std::uint32_t>(bytes.size())), append<std::uint16_t>(f, 0);
    return f;
  }
};

inline const std::string kMatrix = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";

inline File sound_safetensors() {
  return safetensors(R"({"__metadata__":{"rule":"delta"},"q":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                     R"("n":{"dtype":"I64","shape":[1],"data_offsets":[12,20]}})",
                     20);
}
inline File sound_npz(bool deflate) {
  return Zip()
      .add("q.npy", npy(kMatrix, floats({0, 1, 2, 3, 4, 5})), deflate)
      .add("rule.npy",
           npy("{'descr': '<U5', 'fortran_order': False, 'shape': (), }",
               std::string("d\0\0\0e\0\0\0l\0\0\0t\0\0\0a\0\0\0", 20)),
           deflate)
      .file();
}

/// Every sound file cut at each length, and with each byte changed: the readers must say what is wrong, or read it.
inline std::vector<File> damaged(const File& sound) {
  std::vector<File> all;
  for (std::size_t n = 0; n < sound.size(); ++n) all.emplace_back(sound.begin(), sound.begin() + n);
  for (std::size_t i = 0; i < sound.size(); ++i)
    for (const int flip : {0x01, 0x80, 0xff}) {
      all.push_back(sound);
      all.back()[i] ^= std::byte(flip);
    }
  return all;
}

}  // namespace delta::corpus
