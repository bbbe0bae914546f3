// SPDX-License-Identifier: Apache-2.0
// The readers: sound files as they are, everything else with one clear line.
#include "checks/dump/dump.hpp"

#include <gmock/gmock.h>

#include "tests/checks/corpus.hpp"

namespace delta {
namespace {

using corpus::File;
using corpus::Zip;
using testing::AllOf;
using testing::HasSubstr;

std::vector<double> values(const Dump& d, const std::string& name) {
  std::vector<double> x(static_cast<std::size_t>(d.find(name)->size()));
  d.find(name)->read(0, x);
  return x;
}

std::string complaint(const std::function<void()>& read) {
  try {
    read();
  } catch (const UsageError& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << "one line: " << e.what();
    return e.what();
  }
  return "read without complaint";
}
std::string tensors(const std::string& header, std::size_t data) {
  return complaint([&] { read_safetensors(corpus::safetensors(header, data), "x.safetensors"); });
}
std::string arrays(const File& f) {
  return complaint([&] { read_npz(f, "x.npz").find("q"); });
}

TEST(Safetensors, WritesWhatItReads) {
  Dump d;
  const std::vector<double> x{0, 1, -2.5, 0.125, 3, 65504};
  for (const auto& [name, dtype] : std::initializer_list<std::pair<const char*, Dtype>>{{"a", Dtype::bf16},
                                                                                        {"b", Dtype::fp16},
                                                                                        {"c", Dtype::fp32},
                                                                                        {"d", Dtype::fp64},
                                                                                        {"e", Dtype::i32},
                                                                                        {"f", Dtype::i64}})
    d.add(name, dtype, {2, 3}, x);
  const File file = write_safetensors(d.tensors, {{"rule", "delta"}});
  const Dump r = read_safetensors(file, "memory");
  EXPECT_EQ(r.metadata.at("rule"), "delta");
  EXPECT_EQ(values(r, "a"), (std::vector<double>{0, 1, -2.5, 0.125, 3, 65536}));  // to nearest in bf16
  for (const char* same : {"b", "c", "d"}) EXPECT_EQ(values(r, same), x);
  EXPECT_EQ(values(r, "e"), (std::vector<double>{0, 1, -2, 0, 3, 65504}));
  EXPECT_EQ(r.find("f")->integer(5), 65504);
  EXPECT_EQ(r.find("f")->shape, (std::vector<std::int64_t>{2, 3}));
}

TEST(Safetensors, RefusesEveryLyingHeader) {
  EXPECT_THAT(tensors(R"({"q":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
              AllOf(HasSubstr("x.safetensors"), HasSubstr("'q'"), HasSubstr("[3] of F32"), HasSubstr("8 bytes")));
  EXPECT_THAT(tensors(R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4), HasSubstr("leave the buffer"));
  EXPECT_THAT(tensors(R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), HasSubstr("data_offsets"));
  EXPECT_THAT(
      tensors(
          R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"k":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
          6),
      HasSubstr("overlap"));
  EXPECT_THAT(tensors(R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), HasSubstr("gap"));
  EXPECT_THAT(tensors(R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8), HasSubstr("belong to none"));
  EXPECT_THAT(
      tensors(
          R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"q":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          8),
      HasSubstr("twice"));
  EXPECT_THAT(tensors(R"({"q":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("non-negative"));
  EXPECT_THAT(tensors(R"({"q":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4),
              HasSubstr("does not fill"));
  EXPECT_THAT(tensors(R"({"q":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4), HasSubstr("integers"));
  EXPECT_THAT(tensors(R"({"q":7})", 4), HasSubstr("dtype"));
  EXPECT_THAT(tensors(R"({"__metadata__":{"scale":1}})", 0), HasSubstr("string"));
  EXPECT_THAT(tensors("[]", 0), HasSubstr("JSON"));
  EXPECT_THAT(tensors("{\"q\":" + std::string(100000, '['), 0), HasSubstr("JSON"));
  EXPECT_THAT(tensors("{", 0), HasSubstr("JSON"));
  File huge;
  corpus::append(huge, std::uint64_t{1} << 62);
  EXPECT_THAT(complaint([&] { read_safetensors(huge, "h"); }), HasSubstr("header length"));
  EXPECT_THAT(complaint([&] { read_safetensors(File(3), "h"); }), HasSubstr("too few"));
}

TEST(Safetensors, OnlyWhatIsUsedNeedsATypeThatIsRead) {
  const File file = corpus::safetensors(
      R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"mask":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
      R"("seen":{"dtype":"BOOL","shape":[1],"data_offsets":[7,8]},"w":{"dtype":"F4","shape":[2],"data_offsets":[8,9]}})",
      9);
  const Dump d = read_safetensors(file, "x.safetensors");
  EXPECT_EQ(d.find("q")->size(), 1);
  EXPECT_EQ(d.names(), (std::vector<std::string>{"mask", "q", "seen", "w"}));
  EXPECT_THAT(complaint([&] { d.find("mask"); }),
              AllOf(HasSubstr("x.safetensors: tensor 'mask' is of type U8"), HasSubstr("expected BF16")));
}

TEST(Npz, ReadsStoredAndDeflatedArrays) {
  for (const bool deflate : {false, true}) {
    const File f = corpus::sound_npz(deflate);
    const Dump d = read_npz(f, "x.npz");
    EXPECT_EQ(values(d, "q"), (std::vector<double>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(d.metadata.at("rule"), "delta");
  }
}

TEST(Npz, TurnsColumnMajorArraysAround) {
  const File f = Zip()
                     .add("q.npy", corpus::npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }",
                                               corpus::floats({0, 3, 1, 4, 2, 5})))
                     .file();
  EXPECT_EQ(values(read_npz(f, "x.npz"), "q"), (std::vector<double>{0, 1, 2, 3, 4, 5}));
}

TEST(Npz, KnowsBf16AndTheThreeHeaderVersions) {
  for (const char version : {1, 2, 3}) {
    const File f = Zip()
                       .add("q.npy", corpus::npy("{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }",
                                                 std::string("\x80\x3f\x00\xc0", 4), version))
                       .file();
    EXPECT_EQ(values(read_npz(f, "x.npz"), "q"), (std::vector<double>{1, -2}));
  }
}

TEST(Npz, TakesANumberForAMetadataString) {
  const double scale = 0.125;
  const File f = Zip()
                     .add("scale.npy", corpus::npy("{'descr': '<f8', 'fortran_order': False, 'shape': (), }",
                                                   {reinterpret_cast<const char*>(&scale), 8}))
                     .file();
  EXPECT_EQ(read_npz(f, "x.npz").metadata.at("scale"), "0.125");
}

TEST(Npz, RefusesWhatItCannotMean) {
  const auto array = [](const std::string& dictionary, std::size_t data) {
    return arrays(Zip().add("q.npy", corpus::npy(dictionary, std::string(data, '\1'))).file());
  };
  EXPECT_THAT(array("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 8),
              AllOf(HasSubstr("x.npz"), HasSubstr("'q'"), HasSubstr("[3]"), HasSubstr("8 bytes")));
  EXPECT_THAT(array("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8), HasSubstr(">f4"));
  EXPECT_THAT(array("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8), HasSubstr("|O"));
  EXPECT_THAT(array("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4), HasSubstr("records"));
  EXPECT_THAT(array("{'descr': '<f4', 'shape': (1,), }", 4), HasSubstr("header"));
  EXPECT_THAT(array("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 4),
              HasSubstr("header"));
  EXPECT_THAT(array("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 4),
              HasSubstr("fill"));
  EXPECT_THAT(arrays(Zip().add("q.npy", "no numpy").file()), HasSubstr(".npy"));
  const std::string q = corpus::npy(corpus::kMatrix, std::string(24, '\1'));
  EXPECT_THAT(arrays(Zip().add("q.npy", q).add("q.npy", q).file()), HasSubstr("twice"));
  File cut = corpus::sound_npz(true);
  cut.resize(cut.size() / 2);
  EXPECT_THAT(arrays(cut), HasSubstr("cut"));
  File flipped = corpus::sound_npz(false);
  flipped[30 + 5 + corpus::npy(corpus::kMatrix, "").size()] ^= std::byte{1};  // the first number
  EXPECT_THAT(arrays(flipped), HasSubstr("checksum"));
}

/// The member's size as the central directory of an archive with one member has it.
void promise(File& f, std::uint32_t size) { std::memcpy(f.data() + f.size() - 22 - 5 - 46 + 24, &size, 4); }

TEST(Npz, AnArrayThatPromisesTooMuchCostsNothing) {
  File more_than_its_shape = Zip().add("q.npy", corpus::npy(corpus::kMatrix, std::string(24, '\1')), true).file();
  promise(more_than_its_shape, 0xfffffff0);
  EXPECT_THAT(arrays(more_than_its_shape), HasSubstr("does not fill its 4294967"));
  const std::string large =
      corpus::npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,), }", std::string(24, '\1'));
  File as_its_shape = Zip().add("q.npy", large, true).file();
  promise(as_its_shape, static_cast<std::uint32_t>(large.size() - 24) + 4000000000u);
  EXPECT_THAT(arrays(as_its_shape), HasSubstr("promises"));
}

TEST(Npz, UnpacksOnlyWhatIsNeeded) {
  // An archive whose second member is broken behind its header: whoever inflates it says so.
  const auto with = [](const std::string& dictionary, const std::string& name) {
    std::string noise(300000, '\0');
    for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * i >> 7);
    Zip zip;
    zip.add("q.npy", corpus::npy(corpus::kMatrix, corpus::floats({0, 1, 2, 3, 4, 5})), true);
    zip.add(name + ".npy", corpus::npy(dictionary, noise), true);
    for (std::size_t i = 1; i < 20; ++i) zip.bytes[zip.bytes.size() - i] ^= std::byte{0xff};
    return zip.file();
  };
  const std::string floats = "{'descr': '<f4', 'fortran_order': False, 'shape': (75000,), }",
                    fewer = "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }",
                    bytes = "{'descr': '|u1', 'fortran_order': False, 'shape': (300000,), }";
  const auto only_q = [](std::string_view name) { return name == "q"; };
  EXPECT_THAT(complaint([&] { read_npz(with(floats, "k"), "x"); }), HasSubstr("damaged"));
  EXPECT_THAT(complaint([&] { read_npz(with(fewer, "k"), "x"); }), HasSubstr("[7] of '<f4' does not fill its 300000"));
  const File unwanted = with(floats, "history"), untyped = with(bytes, "k");
  const Dump d = read_npz(unwanted, "x", only_q), e = read_npz(untyped, "x");
  EXPECT_EQ(values(d, "q"), values(e, "q"));
  EXPECT_EQ(d.names(), (std::vector<std::string>{"history", "q"}));
  EXPECT_THAT(complaint([&] { e.find("k"); }), HasSubstr("tensor 'k' is of type '|u1'"));
}

TEST(Readers, SayWhatIsWrongWithEveryDamagedFile) {
  for (const File& sound : {corpus::sound_safetensors(), corpus::sound_npz(false), corpus::sound_npz(true)})
    for (const File& f : corpus::damaged(sound))
      for (const bool zip : {false, true})
        complaint([&] { zip ? read_npz(f, "damaged") : read_safetensors(f, "damaged"); });
}

TEST(Readers, ReadTheSeedsOfTheFuzzer) {
  for (const char* seed : {"/small.safetensors", "/stored.npz", "/deflated.npz"}) {
    const Dump d = read_dump(std::string(DELTAREF_SEEDS) + seed);
    EXPECT_EQ(d.find("q")->shape, (std::vector<std::int64_t>{1, 2, 1, 2})) << seed;
    EXPECT_EQ(d.metadata.at("rule"), "delta") << seed;
  }
}

TEST(Readers, NameTheFileThatIsNotThere) {
  EXPECT_THAT(complaint([] { read_dump("/nonexistent/x.npz"); }),
              AllOf(HasSubstr("/nonexistent/x.npz"), HasSubstr("open")));
  EXPECT_THAT(complaint([] { read_dump("/"); }), HasSubstr("regular file"));
}

}  // namespace
}  // namespace delta
