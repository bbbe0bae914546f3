// SPDX-License-Identifier: Apache-2.0
// The safetensors format: u64 length of the header, the header in JSON, then the bytes of all tensors without gaps.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "checks/dump/dump.hpp"

namespace delta {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<std::string_view, Dtype> kNames[] = {{"BF16", Dtype::bf16}, {"F16", Dtype::fp16},
                                                         {"F32", Dtype::fp32},  {"F64", Dtype::fp64},
                                                         {"I32", Dtype::i32},   {"I64", Dtype::i64}};

/// A dump has some thirty tensors: its header takes a few kB. The bound keeps the parser's memory small.
constexpr std::uint64_t kLongestHeader = 1 << 20;
constexpr int kDeepest = 3;  // { "q": { "shape": [ ... ] } }

/// The header as JSON; refuses what a lenient parser would let pass: a name that occurs twice, deep nesting.
Json parse_header(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> names;  // of the open objects
  std::string twice;
  bool deep = false;
  const Json header = Json::parse(
      text.begin(), text.end(),
      [&](int depth, Json::parse_event_t event, Json& parsed) {
        using Event = Json::parse_event_t;
        if (event == Event::object_start) names.emplace_back();
        if (event == Event::object_end) names.pop_back();
        if (event == Event::key && !names.back().insert(parsed.get<std::string>()).second && twice.empty())
          twice = parsed.get<std::string>();
        deep = deep || depth > kDeepest;
        return depth <= kDeepest;
      },
      /*allow_exceptions=*/false);
  if (!twice.empty()) throw UsageError(file + ": header names '" + twice + "' twice; each tensor must be stored once");
  if (header.is_discarded() || !header.is_object() || deep)
    throw UsageError(file + ": header is not the JSON object of a safetensors file; was the file cut or overwritten?");
  return header;
}

std::optional<std::int64_t> length(const Json& j) {
  if (!j.is_number_unsigned() || j.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  return j.get<std::int64_t>();
}

/// A list of non-negative integers under a key of a tensor's entry.
std::vector<std::int64_t> integers(const Json& entry, const char* key, const std::string& where) {
  const auto list = entry.find(key);
  std::vector<std::int64_t> out;
  if (list != entry.end() && list->is_array())
    for (const Json& x : *list)
      if (const auto n = length(x)) out.push_back(*n);
  if (list == entry.end() || !list->is_array() || out.size() != list->size())
    throw UsageError(where + ": expected '" + key + "' as a list of non-negative integers, got " +
                     (list == entry.end() ? "nothing" : list->dump().substr(0, 60)));
  return out;
}

}  // namespace

Dump read_safetensors(std::span<const std::byte> file, std::string name) {
  Dump d{.file = std::move(name)};
  std::uint64_t n = 0;
  if (file.size() < sizeof n)
    throw UsageError(d.file + ": " + std::to_string(file.size()) +
                     " bytes are too few for a safetensors file; was it cut?");
  std::memcpy(&n, file.data(), sizeof n);
  const std::uint64_t rest = file.size() - sizeof n;
  if (n > rest)
    throw UsageError(d.file + ": header length says " + std::to_string(n) + " bytes, the file has " +
                     std::to_string(rest) + " more; is it cut, or no safetensors file?");
  if (n > kLongestHeader)
    throw UsageError(d.file + ": header of " + std::to_string(n) + " bytes; a dump's header has at most " +
                     std::to_string(kLongestHeader) + ": store the tensors of one call only");
  const char* text_begin = reinterpret_cast<const char*>(file.data()) + sizeof n;
  const Json header = parse_header({text_begin, static_cast<std::size_t>(n)}, d.file);
  const std::span<const std::byte> buffer = file.subspan(sizeof n + n);

  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") {
      if (!entry.is_object()) throw UsageError(d.file + ": __metadata__ must be an object of strings");
      for (const auto& [k, v] : entry.items()) {
        if (!v.is_string())
          throw UsageError(d.file + ": metadata '" + k + "' must be a string, got " + v.dump().substr(0, 60));
        d.metadata[k] = v.get<std::string>();
      }
      continue;
    }
    const std::string where = d.file + ": tensor '" + key + "'";
    if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string())
      throw UsageError(where + ": expected an entry with dtype, shape and data_offsets");
    const std::string dtype = entry["dtype"].get<std::string>();
    const std::vector<std::int64_t> shape = integers(entry, "shape", where);
    const std::vector<std::int64_t> offsets = integers(entry, "data_offsets", where);
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      throw UsageError(where + ": expected data_offsets [begin, end], got " + text(offsets));
    if (static_cast<std::uint64_t>(offsets[1]) > buffer.size())
      throw UsageError(where + ": data_offsets " + text(offsets) + " leave the buffer of " +
                       std::to_string(buffer.size()) + " bytes; was the file cut?");
    ranges.emplace_back(offsets[0], offsets[1]);
    const auto* known = std::ranges::find(kNames, dtype, &std::pair<std::string_view, Dtype>::first);
    if (known == std::end(kNames)) {
      d.unread[key] = "is of type " + dtype.substr(0, 20) +
                      ", which is not read; expected BF16, F16, F32 or F64 (offsets: I32 or I64)";
      continue;
    }
    const std::int64_t count = elements(shape), bytes = offsets[1] - offsets[0];
    const auto size = static_cast<std::int64_t>(size_of(known->second));
    if (count < 0 || count != bytes / size || bytes % size != 0)
      throw UsageError(where + ": shape " + text(shape) + " of " + dtype + " does not fill its " +
                       std::to_string(bytes) + " bytes");
    d.tensors[key] = {known->second, shape, buffer.subspan(static_cast<std::size_t>(offsets[0]), bytes)};
  }
  // The format wants the buffer covered without gap or overlap, so that a file has one meaning.
  std::ranges::sort(ranges);
  std::int64_t end = 0;
  for (const auto& [first, last] : ranges) {
    if (first != end)
      throw UsageError(d.file + ": tensors " + (first < end ? "overlap" : "leave a gap") + " at byte " +
                       std::to_string(std::min(first, end)) + " of the data; write the file again");
    end = last;
  }
  if (static_cast<std::uint64_t>(end) != buffer.size())
    throw UsageError(d.file + ": " + std::to_string(buffer.size() - end) +
                     " bytes after the last tensor belong to none; write the file again");
  return d;
}

std::vector<std::byte> write_safetensors(const std::map<std::string, DumpTensor>& tensors,
                                         const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t end = 0;
  for (const auto& [name, t] : tensors) {
    const auto* known = std::ranges::find(kNames, t.dtype, &std::pair<std::string_view, Dtype>::second);
    header[name] = {{"dtype", known->first}, {"shape", t.shape}, {"data_offsets", {end, end + t.bytes.size()}}};
    end += t.bytes.size();
  }
  std::string head = header.dump();
  head.resize((head.size() + 7) / 8 * 8, ' ');  // the data start at a multiple of 8
  const std::uint64_t n = head.size();
  std::vector<std::byte> out(sizeof n + head.size());
  std::memcpy(out.data(), &n, sizeof n);
  std::memcpy(out.data() + sizeof n, head.data(), head.size());
  for (const auto& [name, t] : tensors) out.insert(out.end(), t.bytes.begin(), t.bytes.end());
  return out;
}

}  // namespace delta
