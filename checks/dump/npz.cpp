// SPDX-License-Identifier: Apache-2.0
// The npz format: a zip archive with one .npy file per array, stored or deflated. Nothing here unpickles.
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>

#include "checks/dump/dump.hpp"

namespace delta {
namespace {

using Bytes = std::span<const std::byte>;

/// Little-endian numbers at any place of a file; a place outside it is an error of the file.
class Reader {
 public:
  Reader(Bytes bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  template <class T> T number(std::uint64_t at) const {
    T x;
    std::memcpy(&x, part(at, sizeof x).data(), sizeof x);
    return x;
  }
  Bytes part(std::uint64_t at, std::uint64_t n) const {
    if (at > bytes_.size() || n > bytes_.size() - at)
      throw UsageError(where_ + ": needs bytes " + std::to_string(at) + " to " + std::to_string(at) + "+" +
                       std::to_string(n) + " of " + std::to_string(bytes_.size()) + "; was the file cut?");
    return bytes_.subspan(at, n);
  }
  std::string string(std::uint64_t at, std::uint64_t n) const {
    const Bytes b = part(at, n);
    return {reinterpret_cast<const char*>(b.data()), b.size()};
  }
  std::uint64_t size() const { return bytes_.size(); }

 private:
  Bytes bytes_;
  std::string where_;
};

/// One file of the archive, as the central directory describes it.
struct Member {
  std::string name;
  std::uint16_t method = 0, flags = 0;
  std::uint32_t crc = 0;
  std::uint64_t packed = 0, size = 0, header = 0;
};

constexpr std::uint32_t kEnd = 0x06054b50, kCentral = 0x02014b50, kLocal = 0x04034b50;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the number stands in the zip64 extra field
constexpr std::uint64_t kEndSize = 22, kCentralSize = 46, kLocalSize = 30, kLongestComment = 65535;

/// Where the central directory ends: the last record with the right signature and a comment that fits.
std::uint64_t find_end(const Reader& zip, const std::string& file) {
  for (std::uint64_t back = kEndSize; back <= zip.size() && back <= kEndSize + kLongestComment; ++back) {
    const std::uint64_t at = zip.size() - back;
    if (zip.number<std::uint32_t>(at) == kEnd && zip.number<std::uint16_t>(at + 20) == back - kEndSize) return at;
  }
  throw UsageError(file + ": begins as a zip archive and has no end record; was the file cut?");
}

std::vector<Member> members(const Reader& zip, const std::string& file) {
  const std::uint64_t end = find_end(zip, file);
  const auto count = zip.number<std::uint16_t>(end + 10);
  std::uint64_t at = zip.number<std::uint32_t>(end + 16);
  if (count == 0xffff || at == kIn64)
    throw UsageError(file + ": archives beyond 4 GB or 65534 arrays are not read; store it as .safetensors");
  std::vector<Member> all;
  for (int i = 0; i < count; ++i) {
    if (zip.number<std::uint32_t>(at) != kCentral)
      throw UsageError(file + ": entry " + std::to_string(i) + " of the zip directory is damaged");
    const auto name = zip.number<std::uint16_t>(at + 28), extra = zip.number<std::uint16_t>(at + 30),
               comment = zip.number<std::uint16_t>(at + 32);
    Member m{.name = zip.string(at + kCentralSize, name),
             .method = zip.number<std::uint16_t>(at + 10),
             .flags = zip.number<std::uint16_t>(at + 8),
             .crc = zip.number<std::uint32_t>(at + 16),
             .packed = zip.number<std::uint32_t>(at + 20),
             .size = zip.number<std::uint32_t>(at + 24),
             .header = zip.number<std::uint32_t>(at + 42)};
    const std::uint64_t fields = at + kCentralSize + name, fields_end = fields + extra;
    for (std::uint64_t f = fields; f + 4 <= fields_end; f += 4 + zip.number<std::uint16_t>(f + 2)) {
      if (zip.number<std::uint16_t>(f) != 1) continue;  // zip64: the numbers that did not fit, in this order
      std::uint64_t n = f + 4;
      for (std::uint64_t* x : {&m.size, &m.packed, &m.header})
        if (*x == kIn64) *x = zip.number<std::uint64_t>(n), n += 8;
    }
    all.push_back(std::move(m));
    at = fields_end + comment;
  }
  return all;
}

/// The bytes of a member: in place if stored, inflated into memory of the dump if deflated. The output grows with
/// what really comes out, so a member that lies about its size costs nothing.
Bytes contents(const Reader& zip, const Member& m, const std::string& where, Dump& dump) {
  if (m.flags & 1) throw UsageError(where + ": is encrypted; store it without a password");
  if (zip.number<std::uint32_t>(m.header) != kLocal) throw UsageError(where + ": its zip header is damaged");
  const std::uint64_t data =
      m.header + kLocalSize + zip.number<std::uint16_t>(m.header + 26) + zip.number<std::uint16_t>(m.header + 28);
  const Bytes packed = zip.part(data, m.packed);
  auto checked = [&](Bytes b) {
    const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(b.data()), b.size());
    if (crc != m.crc) throw UsageError(where + ": its checksum does not match; the file is damaged");
    return b;
  };
  if (m.method == 0) {
    if (m.packed != m.size) throw UsageError(where + ": is stored, with two different sizes; the file is damaged");
    return checked(packed);
  }
  if (m.method != Z_DEFLATED)
    throw UsageError(where + ": is compressed by method " + std::to_string(m.method) +
                     "; expected stored or deflated, as numpy.savez and savez_compressed write");
  z_stream z{};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) throw UsageError(where + ": cannot start to inflate");
  struct End {
    z_stream& z;
    ~End() { inflateEnd(&z); }
  } const end{z};
  auto out = std::make_shared<std::vector<std::byte>>();
  std::uint64_t in = 0;
  int status = Z_OK;
  while (status == Z_OK && out->size() <= m.size) {
    const std::size_t have = out->size();
    // The final block is sized to what is promised; one byte more shows a promise that is too small.
    out->resize(std::min<std::uint64_t>(have + std::max<std::uint64_t>(have, 1 << 16), m.size + 1));
    z.next_out = reinterpret_cast<Bytef*>(out->data() + have);
    z.avail_out = static_cast<uInt>(std::min<std::uint64_t>(out->size() - have, 1u << 30));
    const uInt space = z.avail_out;
    while (status == Z_OK && z.avail_out > 0) {
      if (z.avail_in == 0) {
        const std::uint64_t n = std::min<std::uint64_t>(packed.size() - in, 1u << 30);
        if (n == 0) status = Z_BUF_ERROR;
        z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data() + in));
        z.avail_in = static_cast<uInt>(n);
        in += n;
      }
      if (status == Z_OK) status = inflate(&z, Z_NO_FLUSH);
    }
    out->resize(have + (space - z.avail_out));
  }
  if (status != Z_STREAM_END || out->size() != m.size)
    throw UsageError(where + ": its compressed data are damaged, or not of the " + std::to_string(m.size) +
                     " bytes that the archive promises");
  dump.storage.push_back(out);
  return checked(*out);
}

/// What stands in the header of a .npy file, a Python dictionary such as
/// {'descr': '<f4', 'fortran_order': False, 'shape': (1, 150, 2), }
struct NpyHeader {
  std::string descr;
  bool fortran = false;
  std::vector<std::int64_t> shape;
};

/// A parser for just that dictionary.
class NpyParser {
 public:
  NpyParser(std::string_view text, const std::string& where) : rest_(text), where_(where) {}

  NpyHeader parse() {
    NpyHeader h;
    int seen = 0;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr")
        h.descr = quoted(), seen |= 1;
      else if (key == "fortran_order")
        h.fortran = boolean(), seen |= 2;
      else if (key == "shape")
        h.shape = tuple(), seen |= 4;
      else
        fail();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (seen != 7) fail();
    return h;
  }

 private:
  [[noreturn]] void fail() const {
    throw UsageError(where_ + ": its .npy header is not understood at '" + std::string(rest_.substr(0, 30)) +
                     "'; expected an array of floats, integers or strings, not of records or objects");
  }
  void skip() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool accept(char c) {
    skip();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail();
  }
  std::string quoted() {
    skip();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) fail();
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == rest_.npos) fail();
    const std::string s(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return s;
  }
  bool boolean() {
    skip();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (rest_.starts_with(word)) return rest_.remove_prefix(word.size()), value;
    fail();
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> out;
    expect('(');
    while (!accept(')')) {
      std::int64_t n = 0;
      skip();
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), n);
      if (error != std::errc() || n < 0) fail();
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      out.push_back(n);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }

  std::string_view rest_;
  const std::string& where_;
};

/// The type of a numeric array; nothing for another. numpy has no bf16: ml_dtypes stores it as two-byte void.
std::optional<Dtype> dtype_of(std::string_view descr) {
  constexpr std::pair<std::string_view, Dtype> names[] = {
      {"<V2", Dtype::bf16}, {"|V2", Dtype::bf16}, {"bfloat16", Dtype::bf16}, {"<f2", Dtype::fp16},
      {"<f4", Dtype::fp32}, {"<f8", Dtype::fp64}, {"<i4", Dtype::i32},       {"<i8", Dtype::i64}};
  const auto* known = std::ranges::find(names, descr, &std::pair<std::string_view, Dtype>::first);
  return known == std::end(names) ? std::nullopt : std::optional(known->second);
}

/// An array of one string, '<U11' (UTF-32) or '|S11': the metadata of an npz dump. Trailing zeros pad it.
std::optional<std::string> string_of(const NpyHeader& h, Bytes data) {
  const bool wide = h.descr.starts_with("<U");
  if (!wide && !h.descr.starts_with("|S")) return std::nullopt;
  const std::size_t width = wide ? 4 : 1;
  if (elements(h.shape) != 1 || data.size() % width != 0) return std::nullopt;
  std::string s;
  for (std::size_t i = 0; i < data.size(); i += width) {
    std::uint32_t c = 0;
    std::memcpy(&c, data.data() + i, width);
    if (c == 0) break;
    s += c < 128 ? static_cast<char>(c) : '?';  // names and numbers are ASCII
  }
  return s;
}

/// Column-major data in C order.
Bytes to_c_order(Bytes data, std::span<const std::int64_t> shape, std::size_t size, Dump& dump) {
  auto out = std::make_shared<std::vector<std::byte>>(data.size());
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::size_t to = 0; to < data.size(); to += size) {
    std::size_t from = 0;
    for (std::size_t a = shape.size(); a-- > 0;) from = from * shape[a] + index[a];
    std::memcpy(out->data() + to, data.data() + from * size, size);
    for (std::size_t a = shape.size(); a-- > 0 && ++index[a] == shape[a];) index[a] = 0;
  }
  dump.storage.push_back(out);
  return *out;
}

void add_array(Dump& dump, const std::string& key, Bytes npy) {
  const std::string where = dump.file + ": array '" + key + "'";
  const Reader r(npy, where);
  if (r.string(0, 6) != "\x93NUMPY") throw UsageError(where + ": is no .npy file");
  const auto version = r.number<std::uint8_t>(6);
  if (version < 1 || version > 3)
    throw UsageError(where + ": .npy version " + std::to_string(version) + " is not read; expected 1, 2 or 3");
  const std::uint64_t begin = version == 1 ? 10 : 12;
  const std::uint64_t length = version == 1 ? r.number<std::uint16_t>(8) : r.number<std::uint32_t>(8);
  const std::string header = r.string(begin, length);
  const NpyHeader h = NpyParser(header, where).parse();
  const Bytes data = npy.subspan(begin + length);

  if (const auto s = string_of(h, data)) {
    dump.metadata[key] = *s;
    return;
  }
  const auto dtype = dtype_of(h.descr);
  if (!dtype)
    throw UsageError(where + ": type '" + h.descr.substr(0, 20) +
                     "' is not read; expected little-endian bfloat16, float16, float32 or float64 (offsets: int32 or "
                     "int64; metadata: one string)");
  const std::int64_t count = elements(h.shape);
  const std::size_t size = size_of(*dtype);
  if (count < 0 || data.size() % size != 0 || static_cast<std::uint64_t>(count) != data.size() / size)
    throw UsageError(where + ": shape " + text(h.shape) + " of '" + h.descr + "' does not fill its " +
                     std::to_string(data.size()) + " bytes");
  dump.tensors[key] = {*dtype, h.shape, h.fortran && count > 0 ? to_c_order(data, h.shape, size, dump) : data};
}

/// A metadata number, such as scale = np.float64(0.125), is as good as its text.
void numbers_to_metadata(Dump& dump) {
  for (const char* key : {"scale", "qk_l2norm"})
    if (const DumpTensor* t = dump.find(key); t && t->size() == 1) {
      char s[40];
      std::snprintf(s, sizeof s, "%.17g", t->at(0));
      dump.metadata[key] = s;
      dump.tensors.erase(key);
    }
}

}  // namespace

Dump read_npz(Bytes file, std::string name) {
  Dump d{.file = std::move(name)};
  const Reader zip(file, d.file);
  std::uint64_t packed = 0;  // of all members so far: members that share bytes could unpack to any size
  for (const Member& m : members(zip, d.file)) {
    packed += std::min<std::uint64_t>(m.packed, file.size() + 1);
    if (packed > file.size()) throw UsageError(d.file + ": the arrays of the archive overlap; the file is damaged");
    std::string key = m.name;
    if (key.ends_with(".npy")) key.resize(key.size() - 4);
    const std::string where = d.file + ": array '" + key + "'";
    if (d.tensors.contains(key) || d.metadata.contains(key)) throw UsageError(where + ": is stored twice");
    add_array(d, key, contents(zip, m, where, d));
  }
  numbers_to_metadata(d);
  return d;
}

}  // namespace delta
