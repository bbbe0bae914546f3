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

/// The bytes of a member, as many as are asked for: in place if it is stored, else inflated. Memory grows with what
/// really comes out, so a member that lies about its size costs nothing.
class Contents {
 public:
  Contents(const Reader& zip, const Member& m, const std::string& where) : m_(m), where_(where) {
    if (m.flags & 1) throw UsageError(where + ": is encrypted; store it without a password");
    if (zip.number<std::uint32_t>(m.header) != kLocal) throw UsageError(where + ": its zip header is damaged");
    const std::uint64_t data =
        m.header + kLocalSize + zip.number<std::uint16_t>(m.header + 26) + zip.number<std::uint16_t>(m.header + 28);
    packed_ = zip.part(data, m.packed);
    if (m.method != 0 && m.method != Z_DEFLATED)
      throw UsageError(where + ": is compressed by method " + std::to_string(m.method) +
                       "; expected stored or deflated, as numpy.savez and savez_compressed write");
    if (m.method == 0 && m.packed != m.size)
      throw UsageError(where + ": is stored, with two different sizes; the file is damaged");
    if (m.method == Z_DEFLATED && inflateInit2(&z_, -MAX_WBITS) != Z_OK)
      throw UsageError(where + ": cannot start to inflate");
  }
  Contents(const Contents&) = delete;
  ~Contents() { inflateEnd(&z_); }

  /// The first n bytes, or all if there are fewer.
  Bytes first(std::uint64_t n) {
    if (m_.method == Z_DEFLATED) inflate_to(n);
    const Bytes have = m_.method == Z_DEFLATED ? Bytes(*out_) : packed_;
    return have.first(std::min<std::uint64_t>(n, have.size()));
  }

  /// All of them, of the promised size and checksum; the dump keeps them.
  Bytes all(Dump& dump) {
    // The final block is sized to what is promised; one byte more shows a promise that is too small.
    while (m_.method == Z_DEFLATED && status_ == Z_OK && out_->size() <= m_.size)
      inflate_to(std::min<std::uint64_t>(std::max<std::uint64_t>(2 * out_->size(), 1 << 16), m_.size + 1));
    const Bytes bytes = first(m_.size + 1);
    if (bytes.size() != m_.size || (m_.method == Z_DEFLATED && status_ != Z_STREAM_END))
      throw UsageError(where_ + ": its compressed data are damaged, or not of the " + std::to_string(m_.size) +
                       " bytes that the archive promises");
    if (crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) != m_.crc)
      throw UsageError(where_ + ": its checksum does not match; the file is damaged");
    dump.storage.push_back(out_);
    return bytes;
  }

 private:
  void inflate_to(std::uint64_t n) {
    const std::size_t have = out_->size();
    if (status_ != Z_OK || n <= have) return;
    constexpr std::uint64_t most = 1u << 30;  // what zlib can count
    n = std::min<std::uint64_t>(n, have + most);
    out_->resize(n);
    z_.next_out = reinterpret_cast<Bytef*>(out_->data() + have);
    z_.avail_out = static_cast<uInt>(n - have);
    while (status_ == Z_OK && z_.avail_out > 0) {
      if (z_.avail_in == 0) {
        const std::uint64_t more = std::min<std::uint64_t>(packed_.size() - in_, most);
        if (more == 0) status_ = Z_BUF_ERROR;
        z_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed_.data() + in_));
        z_.avail_in = static_cast<uInt>(more);
        in_ += more;
      }
      if (status_ == Z_OK) status_ = inflate(&z_, Z_NO_FLUSH);
    }
    out_->resize(n - z_.avail_out);
  }

  const Member& m_;
  const std::string& where_;
  Bytes packed_;
  std::uint64_t in_ = 0;  ///< so many packed bytes were handed over
  std::shared_ptr<std::vector<std::byte>> out_ = std::make_shared<std::vector<std::byte>>();
  z_stream z_{};
  int status_ = Z_OK;
};

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

/// The width of a character of a string array, '<U11' (UTF-32) or '|S11'; 0 for another.
std::size_t character_width(std::string_view descr) { return descr.starts_with("<U") ? 4 : descr.starts_with("|S"); }

/// How many bytes an array of this header has, if it is one that is read: numbers, or one string of metadata.
std::optional<std::uint64_t> size_in_bytes(const NpyHeader& h) {
  const std::int64_t count = elements(h.shape);
  std::uint64_t size = 0, n = 0;
  if (const auto dtype = dtype_of(h.descr)) {
    size = size_of(*dtype);
  } else if (const std::size_t width = character_width(h.descr); width > 0 && count == 1) {
    const char *digits = h.descr.data() + 2, *end = h.descr.data() + h.descr.size();
    std::uint32_t length = 0;
    if (const auto [at, error] = std::from_chars(digits, end, length); error != std::errc() || at != end)
      return std::nullopt;
    size = width * length;
  } else {
    return std::nullopt;
  }
  // More than there can be, where the product does not fit.
  return count < 0 || __builtin_mul_overflow(static_cast<std::uint64_t>(count), size, &n) ? UINT64_MAX : n;
}

/// Trailing zeros pad a string.
std::string string_of(std::size_t width, Bytes data) {
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

constexpr std::uint64_t kLongestHeader = 1 << 16;  // numpy's own take some 100 bytes

/// Unpacks the header of an array; the rest only if its type is read, and as long as its shape says.
void add_array(Dump& dump, const std::string& key, const Reader& zip, const Member& m) {
  const std::string where = dump.file + ": array '" + key + "'";
  Contents contents(zip, m, where);
  const Reader r(contents.first(kLongestHeader), where);
  if (r.string(0, 6) != "\x93NUMPY") throw UsageError(where + ": is no .npy file");
  const auto version = r.number<std::uint8_t>(6);
  if (version < 1 || version > 3)
    throw UsageError(where + ": .npy version " + std::to_string(version) + " is not read; expected 1, 2 or 3");
  const std::uint64_t begin = version == 1 ? 10 : 12;
  const std::uint64_t length = version == 1 ? r.number<std::uint16_t>(8) : r.number<std::uint32_t>(8);
  const std::string header = r.string(begin, length);
  const NpyHeader h = NpyParser(header, where).parse();

  const std::optional<std::uint64_t> expected = size_in_bytes(h);
  if (!expected) {
    dump.unread[key] = "is of type '" + h.descr.substr(0, 20) +
                       "', which is not read; expected little-endian bfloat16, float16, float32 or float64 (offsets: "
                       "int32 or int64; metadata: one string)";
    return;
  }
  const std::uint64_t data_size = m.size - std::min(m.size, begin + length);
  if (data_size != *expected)
    throw UsageError(where + ": shape " + text(h.shape) + " of '" + h.descr + "' does not fill its " +
                     std::to_string(data_size) + " bytes");
  const Bytes data = contents.all(dump).subspan(begin + length);
  if (const auto dtype = dtype_of(h.descr))
    dump.tensors[key] = {*dtype, h.shape,
                         h.fortran && !data.empty() ? to_c_order(data, h.shape, size_of(*dtype), dump) : data};
  else
    dump.metadata[key] = string_of(character_width(h.descr), data);
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

Dump read_npz(Bytes file, std::string name, const Wanted& wanted) {
  Dump d{.file = std::move(name)};
  const Reader zip(file, d.file);
  std::uint64_t packed = 0;  // of all members so far: members that share bytes could unpack to any size
  for (const Member& m : members(zip, d.file)) {
    packed += std::min<std::uint64_t>(m.packed, file.size() + 1);
    if (packed > file.size()) throw UsageError(d.file + ": the arrays of the archive overlap; the file is damaged");
    std::string key = m.name;
    if (key.ends_with(".npy")) key.resize(key.size() - 4);
    if (d.tensors.contains(key) || d.metadata.contains(key) || d.unread.contains(key))
      throw UsageError(d.file + ": array '" + key + "': is stored twice");
    if (wanted(key))
      add_array(d, key, zip, m);
    else
      d.unread[key] = "was not looked at";
  }
  numbers_to_metadata(d);
  return d;
}

}  // namespace delta
