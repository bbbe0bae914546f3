// SPDX-License-Identifier: Apache-2.0
// What of the kernels can be tested without a GPU: the description of a problem, the choice of a kernel, the memory it
// needs, the sentences, and that the evidence belongs to the sources.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "gpu/deltaref_gpu.hpp"
#include "gpu/plan.hpp"

namespace delta::gpu {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

constexpr deltaref_gpu_device_t kH200{90, 132, 232448}, kA100{80, 108, 166912}, kAda{89, 128, 101376},
    kVolta{70, 80, 98304};

/// A sound problem: pointers are only looked at, never followed.
deltaref_gpu_problem sound() {
  static std::array<std::uint64_t, 4> memory alignas(16);
  deltaref_gpu_problem p{};
  p.rule = DELTAREF_Q_DELTA, p.dtype = DELTAREF_BF16;
  p.B = 2, p.T = 100, p.H = 2, p.HV = 6, p.d_k = 128, p.d_v = 64, p.scale = 0.125;
  p.q = p.k = contiguous(memory.data(), p.T, p.H, p.d_k);
  p.v = p.o = contiguous(memory.data(), p.T, p.HV, p.d_v);
  p.g = p.beta = p.lambda = contiguous(memory.data(), p.T, p.HV, 1);
  return p;
}

deltaref_gpu_plan_t planned(const deltaref_gpu_problem& p, const deltaref_gpu_device_t& on = kH200) {
  deltaref_gpu_plan_t plan{};
  EXPECT_EQ(deltaref_gpu_plan(&p, &on, &plan), DELTAREF_OK) << deltaref_gpu_last_error();
  return plan;
}

/// The sentence of a refusal.
std::string refused(const deltaref_gpu_problem& p, deltaref_status with, const deltaref_gpu_device_t& on = kH200) {
  deltaref_gpu_plan_t plan{};
  EXPECT_EQ(deltaref_gpu_plan(&p, &on, &plan), with);
  return deltaref_gpu_last_error();
}

TEST(Description, WhatIsWrongIsSaidInOneSentence) {
  auto wrong = [](auto change) {
    deltaref_gpu_problem p = sound();
    change(p);
    return refused(p, DELTAREF_INVALID_ARGUMENT);
  };
  EXPECT_THAT(wrong([](auto& p) { p.rule = 9; }), HasSubstr("rule: expected 0 (linear) to 6 (kda), got 9"));
  EXPECT_THAT(wrong([](auto& p) { p.dtype = -1; }), HasSubstr("dtype"));
  EXPECT_THAT(wrong([](auto& p) { p.gate = 2; }), HasSubstr("gate"));
  EXPECT_THAT(wrong([](auto& p) { p.state_layout = 2; }), HasSubstr("state_layout"));
  EXPECT_THAT(wrong([](auto& p) { p.version = DELTAREF_NEWEST + 1; }),
              HasSubstr("version: expected 0 (auto) to " + std::to_string(DELTAREF_NEWEST)));
  EXPECT_THAT(wrong([](auto& p) { p.rows = 48; }), HasSubstr("rows"));
  for (const int segments : {-1, 65})
    EXPECT_THAT(wrong([=](auto& p) { p.segments = segments; }),
                HasSubstr("segments: expected 0 (chosen), 1 (never cut) or 2 to 64, got " + std::to_string(segments)));
  EXPECT_THAT(wrong([](auto& p) { p.B = 0; }), HasSubstr("B = 0"));
  EXPECT_THAT(wrong([](auto& p) { p.HV = 5; }), HasSubstr("multiple of H, got H = 2, HV = 5"));
  EXPECT_THAT(wrong([](auto& p) { p.d_k = 257; }), HasSubstr("257"));
  EXPECT_THAT(wrong([](auto& p) { p.q.data = nullptr; }), HasSubstr("q is NULL"));
  EXPECT_THAT(wrong([](auto& p) { p.scale = NAN; }), HasSubstr("scale"));
  EXPECT_THAT(wrong([](auto& p) { p.rule = DELTAREF_DELTA, p.lambda = {}; }), HasSubstr("delta has no decay"));
  EXPECT_THAT(wrong([](auto& p) { p.rule = DELTAREF_MAMBA2, p.lambda = {}; }), HasSubstr("mamba2 has no strength"));
  EXPECT_THAT(wrong([](auto& p) { p.rule = DELTAREF_GATED_DELTA; }), HasSubstr("lambda was given"));
  EXPECT_EQ(deltaref_gpu_plan(nullptr, &kH200, nullptr), DELTAREF_INVALID_ARGUMENT);
}

TEST(Description, OffsetsAreLookedAt) {
  auto with = [](std::vector<std::int64_t> offsets) {
    deltaref_gpu_problem p = sound();
    p.B = 1, p.cu_seqlens = offsets.data(), p.sequences = static_cast<std::int64_t>(offsets.size()) - 1;
    return refused(p, DELTAREF_INVALID_ARGUMENT);
  };
  EXPECT_THAT(with({0, 12, 8, 16}), HasSubstr("must not decrease: entry 2 is 8 after 12"));
  EXPECT_THAT(with({1, 12}), HasSubstr("cu_seqlens[0] must be 0"));
  EXPECT_THAT(with({0, 101}), HasSubstr("ends at 101, beyond T = 100"));
  EXPECT_THAT(with({0}), HasSubstr("at least one sequence"));
  deltaref_gpu_problem p = sound();
  const std::int64_t offsets[] = {0, 5, 5, 69};
  p.cu_seqlens = offsets, p.sequences = 3;
  EXPECT_THAT(refused(p, DELTAREF_INVALID_ARGUMENT), HasSubstr("B = 1, got B = 2"));
  p.B = 1;
  EXPECT_EQ(planned(p).version, DELTAREF_V5);
}

TEST(Choice, TheNewestThatFitsAndItSaysWhyNotANewerOne) {
  deltaref_gpu_problem p = sound();
  EXPECT_EQ(planned(p).version, DELTAREF_V5);
  EXPECT_EQ(planned(p).chunk, 64);
  EXPECT_EQ(planned(p, kA100).version, DELTAREF_V4);
  for (const char* const newer : {"v5", "v7"})
    EXPECT_THAT(std::string(planned(p, kA100).reason),
                HasSubstr(std::string(newer) + " is for compute capability 9.0, the device has 8.0"));
  p.dtype = DELTAREF_FP32;
  EXPECT_EQ(planned(p).version, DELTAREF_V3);
  EXPECT_STREQ(planned(p).reason,
               "v3 (the chunk form in shared memory); not newer: v7 takes bf16 and fp16; v5 takes bf16 and fp16; v4 "
               "takes bf16 and fp16");
  p.dtype = DELTAREF_BF16, p.d_k = 100;
  EXPECT_THAT(std::string(planned(p).reason), HasSubstr("got 100 and 64"));
  p = sound(), p.q.stride_t += 4;
  EXPECT_THAT(std::string(planned(p).reason), EndsWith("multiples of 8 elements")) << "what has no room is left out";
  p = sound(), p.k.stride_h = 0;
  EXPECT_EQ(planned(p).version, DELTAREF_V4) << "the copy engine does not stand still";
  p = sound(), p.rule = DELTAREF_KDA, p.lambda = {};
  EXPECT_EQ(planned(p).version, DELTAREF_V4) << "v5 has no decay per channel";
  int W = 0;
  p = sound(), p.trace.W = &W;
  EXPECT_EQ(planned(p).version, DELTAREF_V4) << "v5 does not compute W";
  p = sound(), p.rule = DELTAREF_KDA, p.lambda = {}, p.dtype = DELTAREF_FP32;
  EXPECT_EQ(planned(p).version, DELTAREF_V2) << "v3 has no decay per channel";
  p = sound(), p.dtype = DELTAREF_FP64, p.d_k = p.d_v = 256;
  EXPECT_EQ(planned(p).version, DELTAREF_V3);
  EXPECT_EQ(planned(p).chunk, 16);
  EXPECT_EQ(planned(p, kAda).version, DELTAREF_V2) << "too little shared memory";
}

TEST(Choice, AskingForAVersionThatDoesNotFitIsRefusedWithTheReason) {
  deltaref_gpu_problem p = sound();
  p.version = DELTAREF_V4, p.d_v = 96;
  EXPECT_THAT(refused(p, DELTAREF_UNSUPPORTED), HasSubstr("64 and 128"));
  p = sound(), p.version = DELTAREF_V4, p.d_k = 64, p.rows = 128;
  EXPECT_THAT(refused(p, DELTAREF_UNSUPPORTED), HasSubstr("a block of v4 owns 16, 32 or 64 rows"));
  p.version = DELTAREF_V2;
  EXPECT_EQ(planned(p).version, DELTAREF_V2);
  int trace = 0;
  p.trace.states = &trace;
  EXPECT_THAT(refused(p, DELTAREF_UNSUPPORTED), HasSubstr("v1 only"));
  p.version = DELTAREF_AUTO;
  EXPECT_EQ(planned(p).version, DELTAREF_V1);
  EXPECT_THAT(refused(sound(), DELTAREF_UNSUPPORTED, kVolta), HasSubstr("7.0"));
}

TEST(Choice, ARefusalHasEachReasonOnce) {
  EXPECT_EQ(refused(sound(), DELTAREF_UNSUPPORTED, kVolta),
            "the device has compute capability 7.0, 8.0 or newer is needed");
}

TEST(Choice, OfWholeSequencesDoesNotDependOnTheLength) {  // or appending tokens would change bits
  for (const auto& [B, version] : {std::pair{2, DELTAREF_V5}, {20, DELTAREF_V7}}) {
    deltaref_gpu_problem p = sound();
    p.B = B, p.d_v = p.d_k, p.segments = 1, p.v = p.o = contiguous(p.v.data, p.T, p.HV, p.d_v);
    for (const std::int64_t T : {1, 2, 63, 65, 4096, 1 << 20}) {
      p.T = T;
      EXPECT_EQ(planned(p).version, version) << T;
    }
  }
}

/// So many heads of 128 value channels, or of d_v, for v5.
deltaref_gpu_problem hopper(std::int64_t heads, std::int64_t d_v = 128) {
  deltaref_gpu_problem p = sound();
  p.version = DELTAREF_V5, p.B = 1, p.H = p.HV = heads, p.d_v = d_v;
  p.q = p.k = contiguous(p.q.data, p.T, p.H, p.d_k), p.v = p.o = contiguous(p.v.data, p.T, p.HV, p.d_v);
  return p;
}

/// rows, chains, producers, clusters
std::array<std::int32_t, 4> cluster(const deltaref_gpu_plan_t& plan) {
  return {plan.rows, plan.chains, plan.producers, plan.clusters};
}
TEST(Clusters, FewHeadsHaveMoreBlocks) {
  for (const int heads : {1, 12, 16})  // 16: as many clusters of six as an H200 holds at a time, 30 of four
    EXPECT_THAT(cluster(planned(hopper(heads))), ElementsAre(64, 2, 4, heads));
  for (const int heads : {17, 30}) EXPECT_THAT(cluster(planned(hopper(heads))), ElementsAre(64, 2, 2, heads));
  EXPECT_THAT(cluster(planned(hopper(31))), ElementsAre(128, 1, 1, 31));
  EXPECT_THAT(cluster(planned(hopper(66))), ElementsAre(128, 1, 1, 66));
  EXPECT_THAT(cluster(planned(hopper(67))), ElementsAre(128, 1, 1, 66)) << "66 clusters of two are resident";
  deltaref_gpu_problem p = hopper(6);  // heads of all sequences count
  p.B = 6;
  EXPECT_THAT(cluster(planned(p)), ElementsAre(128, 1, 1, 36));
  const std::int64_t offsets[] = {0, 10, 20, 30, 40, 50};
  p.B = 1, p.cu_seqlens = offsets, p.sequences = 5;
  EXPECT_THAT(cluster(planned(p)), ElementsAre(64, 2, 2, 30));
}

TEST(Clusters, SixtyFourChannelsAreOneBlock) {
  EXPECT_THAT(cluster(planned(hopper(12, 64))), ElementsAre(64, 1, 1, 12));
  EXPECT_THAT(cluster(planned(hopper(100, 64))), ElementsAre(64, 1, 1, 66));
}

TEST(Clusters, RowsMayBeForced) {
  auto forced = [](std::int64_t heads, std::int32_t rows, std::int64_t d_v = 128) {
    deltaref_gpu_problem p = hopper(heads, d_v);
    p.rows = rows;
    return p;
  };
  EXPECT_THAT(cluster(planned(forced(12, 128))), ElementsAre(128, 1, 1, 12));
  EXPECT_THAT(cluster(planned(forced(100, 64))), ElementsAre(64, 2, 2, 30));
  for (const int rows : {16, 32})
    EXPECT_THAT(refused(forced(12, rows), DELTAREF_UNSUPPORTED), HasSubstr("a block of v5 owns 64 or 128 rows"));
  EXPECT_THAT(refused(forced(12, 128, 64), DELTAREF_UNSUPPORTED), HasSubstr("at most d_v"));
}

TEST(Clusters, ASliceOfADeviceHasAtLeastOne) {
  constexpr deltaref_gpu_device_t slice{90, 8, 232448};
  EXPECT_THAT(cluster(planned(hopper(1), slice)), ElementsAre(128, 1, 1, 1)) << "four may not fit side by side";
  EXPECT_THAT(cluster(planned(hopper(9), slice)), ElementsAre(128, 1, 1, 4));
  for (const std::int32_t segments : {0, 2}) {
    deltaref_gpu_problem p = hopper(1);
    p.version = DELTAREF_AUTO, p.T = 8192, p.segments = segments;
    EXPECT_EQ(planned(p, slice).chains, 1);
  }
}

TEST(Clusters, OtherVersionsHaveNone) {
  deltaref_gpu_problem p = hopper(12);
  for (p.version = DELTAREF_V1; p.version < DELTAREF_V5; ++p.version) {
    const deltaref_gpu_plan_t plan = planned(p);
    EXPECT_EQ(plan.chains + plan.producers + plan.clusters + plan.segments, 0) << p.version;
  }
}

/// So many heads of d_v value channels, for whichever version is chosen or for that one.
deltaref_gpu_problem many(std::int64_t heads, std::int32_t version = DELTAREF_AUTO, std::int64_t d_v = 128) {
  deltaref_gpu_problem p = hopper(heads, d_v);
  p.version = version;
  return p;
}

TEST(Alone, ManyHeadsHaveAMultiprocessorEach) {
  for (const int heads : {67, 100, 132}) {
    const deltaref_gpu_plan_t plan = planned(many(heads));
    EXPECT_EQ(plan.version, DELTAREF_V7) << plan.reason;
    EXPECT_THAT(cluster(plan), ElementsAre(128, 1, 0, heads));
    EXPECT_EQ(plan.segments, 1);
    EXPECT_EQ(plan.chunk, 64);
    EXPECT_EQ(plan.stages, 4);
    EXPECT_EQ(plan.workspace, 0);
    EXPECT_STREQ(plan.reason, "v7 (one multiprocessor a head)");
  }
  for (const int heads : {133, 198, 199, 264, 265, 330, 512, 1024}) {
    EXPECT_EQ(planned(many(heads)).version, DELTAREF_V7) << heads;
    EXPECT_THAT(cluster(planned(many(heads))), ElementsAre(128, 1, 0, 132)) << "blocks share the heads";
  }
  EXPECT_THAT(cluster(planned(many(100, DELTAREF_AUTO, 64))), ElementsAre(64, 1, 0, 100));
}

TEST(Alone, WhereClustersAreFasterTheyStay) {
  for (const int heads : {12, 30, 31, 64, 66}) {
    const deltaref_gpu_plan_t plan = planned(many(heads));
    EXPECT_EQ(plan.version, DELTAREF_V5) << heads;
    EXPECT_THAT(std::string(plan.reason), HasSubstr("not newer: v7 would take longer here; v6 ")) << heads;
  }
  constexpr deltaref_gpu_device_t slice{90, 8, 232448};
  EXPECT_EQ(planned(many(4), slice).version, DELTAREF_V5);
  EXPECT_EQ(planned(many(5), slice).version, DELTAREF_V7) << "a slice is full sooner";
}

TEST(Alone, HeadsOfAllSequencesCount) {
  deltaref_gpu_problem p = many(20);
  EXPECT_EQ(planned(p).version, DELTAREF_V5);
  p.B = 5;
  EXPECT_THAT(cluster(planned(p)), ElementsAre(128, 1, 0, 100));
  const std::int64_t offsets[] = {0, 10, 20, 20, 40};
  p.B = 1, p.cu_seqlens = offsets, p.sequences = 4;
  EXPECT_THAT(cluster(planned(p)), ElementsAre(128, 1, 0, 80));
  EXPECT_EQ(planned(p).workspace, 256) << "the offsets, and nothing of its own";
}

TEST(Alone, MayBeForced) {
  for (const int heads : {1, 64, 140}) {
    const deltaref_gpu_plan_t plan = planned(many(heads, DELTAREF_V7));
    EXPECT_EQ(plan.version, DELTAREF_V7);
    EXPECT_THAT(cluster(plan), ElementsAre(128, 1, 0, std::min(heads, 132)));
  }
  for (const std::int64_t d_k : {64, 128})
    for (const std::int64_t d_v : {64, 128}) {
      deltaref_gpu_problem p = many(2, DELTAREF_V7, d_v);
      p.d_k = d_k, p.q = p.k = contiguous(p.q.data, p.T, p.H, d_k);
      EXPECT_THAT(cluster(planned(p)), ElementsAre(d_v, 1, 0, 2));
    }
  EXPECT_EQ(planned(many(100, DELTAREF_V5)).version, DELTAREF_V5) << "v5 may be forced beside it";
  EXPECT_THAT(refused(many(100, DELTAREF_V6), DELTAREF_UNSUPPORTED), HasSubstr("would save too little time"));
}

TEST(Alone, ABlockCarriesAllRows) {
  deltaref_gpu_problem p = many(100, DELTAREF_V7);
  for (const std::int32_t rows : {0, 128}) {
    p.rows = rows;
    EXPECT_EQ(planned(p).rows, 128);
  }
  for (const std::int32_t rows : {16, 32, 64}) {
    p.rows = rows;
    EXPECT_THAT(refused(p, DELTAREF_UNSUPPORTED), HasSubstr("a block of v7 carries all d_v rows of S"));
  }
  p.version = DELTAREF_AUTO;
  EXPECT_EQ(planned(p).version, DELTAREF_V5) << "which has chains of 64 rows";
  p = many(100, DELTAREF_V7, 64), p.rows = 64;
  EXPECT_EQ(planned(p).rows, 64);
  p.rows = 128;
  EXPECT_THAT(refused(p, DELTAREF_UNSUPPORTED), HasSubstr("carries all d_v rows"));
}

TEST(Alone, WhatStandsInTheWayIsSaid) {
  const auto refusal = [](auto change, const deltaref_gpu_device_t& on = kH200) {
    deltaref_gpu_problem p = many(100, DELTAREF_V7);
    p.rule = DELTAREF_GATED_DELTA, p.lambda = {};
    change(p);
    return refused(p, DELTAREF_UNSUPPORTED, on);
  };
  int trace = 0;
  EXPECT_THAT(refusal([](auto&) {}, kA100), HasSubstr("v7 is for compute capability 9.0, the device has 8.0"));
  EXPECT_THAT(refusal([](auto& p) { p.segments = 2; }), HasSubstr("sequences are cut by v6 only"));
  EXPECT_THAT(refusal([](auto& p) { p.rule = DELTAREF_KDA; }), HasSubstr("v7 takes a scalar decay"));
  EXPECT_THAT(refusal([](auto& p) { p.dtype = DELTAREF_FP32; }), HasSubstr("v7 takes bf16 and fp16"));
  EXPECT_THAT(refusal([](auto& p) { p.d_k = 100; }), HasSubstr("v7 has d_k and d_v of 64 and 128, got 100 and 128"));
  EXPECT_THAT(refusal([](auto& p) { p.q.stride_t += 4; }), HasSubstr("v7 needs q, k, v and o aligned"));
  EXPECT_THAT(refusal([](auto& p) { p.k.stride_h = 0; }), HasSubstr("v7 needs q, k and v with positive strides"));
  EXPECT_THAT(refusal([](auto& p) { p.o.stride_t *= -1; }), HasSubstr("v7 needs o with positive strides"));
  EXPECT_THAT(refusal([](auto& p) { p.T = std::int64_t{1} << 31; }), HasSubstr("v7 counts tokens and chunks"));
  EXPECT_THAT(refusal([&](auto& p) { p.trace.W = &trace; }), HasSubstr("v7 computes neither W nor U~"));
  EXPECT_THAT(refusal([&](auto& p) { p.trace.U = &trace; }), HasSubstr("v7 computes neither W nor U~"));
  EXPECT_THAT(refusal([&](auto& p) { p.trace.states = &trace; }), HasSubstr("v1 only"));
  deltaref_gpu_device_t smaller = kH200;
  smaller.shared_memory = v7_shared(128, 128) - 1;
  EXPECT_THAT(refusal([](auto&) {}, smaller), HasSubstr("v7 needs 228352 bytes of shared memory"));
  deltaref_gpu_problem p = many(100, DELTAREF_V7);
  p.segments = 1, p.trace.gamma = p.trace.L_g = p.trace.inverse = p.trace.Z = p.trace.S = &trace;
  EXPECT_EQ(planned(p).version, DELTAREF_V7) << "whole sequences, and the traces that it has";
}

/// One sequence of so many tokens and heads, as wide as it is high.
deltaref_gpu_problem long_sequence(std::int64_t T, std::int64_t heads, std::int32_t segments = 0) {
  deltaref_gpu_problem p = hopper(heads);
  p.version = DELTAREF_AUTO, p.T = T, p.segments = segments;
  return p;
}

TEST(Segments, FewHeadsOfALongSequenceAreCut) {
  for (const std::int64_t heads : {1, 2, 4, 8}) {
    const deltaref_gpu_problem p = long_sequence(65536, heads);
    const deltaref_gpu_plan_t plan = planned(p);
    EXPECT_EQ(plan.version, DELTAREF_V6) << plan.reason;
    EXPECT_GT(plan.segments, 2) << "two segments save nothing";
    EXPECT_LE(plan.clusters, resident_clusters(132, plan.chains + plan.producers));
    EXPECT_EQ(plan.workspace, heads * (2 * plan.segments - 3) * 128 * 128 * 4);
    EXPECT_LE(plan.workspace, 0.15 * 65536 * static_cast<double>(heads) * 4 * 128 * 2);
  }
  EXPECT_GT(planned(long_sequence(65536, 1)).segments, planned(long_sequence(65536, 8)).segments);
}

TEST(Segments, WhereACutWouldNotPaySequencesStayWhole) {
  const auto whole = [](const deltaref_gpu_problem& p, const deltaref_gpu_device_t& on = kH200) {
    const deltaref_gpu_plan_t plan = planned(p, on);
    EXPECT_EQ(plan.version, DELTAREF_V5);
    EXPECT_EQ(plan.segments, 1);
    return std::string(plan.reason);
  };
  EXPECT_THAT(whole(long_sequence(65536, 16)), HasSubstr("would save too little time")) << "the heads fill the device";
  EXPECT_THAT(whole(long_sequence(1024, 2)), HasSubstr("would save too little time"))
      << "16 chunks cost less than two launches";
  EXPECT_THAT(whole(long_sequence(0, 2)), HasSubstr("would save too little time"));
  EXPECT_THAT(whole(long_sequence(65536, 2, 1)), HasSubstr("segments = 1"));
  deltaref_gpu_problem p = long_sequence(65536, 2);
  p.B = 16;
  EXPECT_THAT(whole(p), HasSubstr("would save too little time")) << "heads of all sequences count";
  EXPECT_THAT(whole(long_sequence(65536, 2), {90, 8, 232448}), HasSubstr("would save too little time"))
      << "a slice of a device";
  p = long_sequence(65536, 2), p.d_v = 64, p.v = p.o = contiguous(p.v.data, p.T, p.HV, p.d_v);
  EXPECT_THAT(whole(p), HasSubstr("v6 needs d_k = d_v, got 128 and 64"));
  p = long_sequence(65536, 2), p.version = DELTAREF_V6;
  EXPECT_EQ(planned(p).version, DELTAREF_V6);
  p.T = 1024;
  EXPECT_THAT(refused(p, DELTAREF_UNSUPPORTED), HasSubstr("would save too little time"));
}

TEST(Segments, MayBeForced) {
  for (const std::int32_t segments : {2, 3, 64}) {  // also where there are fewer chunks
    const deltaref_gpu_plan_t plan = planned(long_sequence(100, 2, segments));
    EXPECT_EQ(plan.version, DELTAREF_V6);
    EXPECT_EQ(plan.segments, segments);
    EXPECT_EQ(plan.workspace, 2 * (2 * segments - 3) * 128 * 128 * 4);
  }
  EXPECT_THAT(cluster(planned(long_sequence(4096, 2, 3))), ElementsAre(64, 2, 4, 6)) << "three parts in the first walk";
  deltaref_gpu_problem p = long_sequence(4096, 2, 3);
  p.rows = 128;
  EXPECT_THAT(cluster(planned(p)), ElementsAre(128, 1, 1, 6));
  p = long_sequence(4096, 2, 3);
  for (p.version = DELTAREF_V1; p.version <= DELTAREF_NEWEST; ++p.version)
    if (p.version != DELTAREF_V6) {
      EXPECT_THAT(refused(p, DELTAREF_UNSUPPORTED), HasSubstr("cut by v6 only")) << p.version;
    }
  p.version = DELTAREF_AUTO;
  EXPECT_THAT(refused(p, DELTAREF_UNSUPPORTED, kA100), HasSubstr("compute capability 9.0"));
  p = long_sequence(4096, 100, 3);
  EXPECT_EQ(planned(p).version, DELTAREF_V6) << "also where heads are many";
  p = long_sequence(4096, 2, 1), p.version = DELTAREF_V6;
  EXPECT_THAT(refused(p, DELTAREF_UNSUPPORTED), HasSubstr("segments = 1 asks for whole ones"));
}

TEST(Segments, TheOffsetsOfAPackedBatchStayInFront) {
  const std::int64_t offsets[] = {0, 100, 40000};
  deltaref_gpu_problem p = long_sequence(40000, 2);
  p.cu_seqlens = offsets, p.sequences = 2;
  const deltaref_gpu_plan_t plan = planned(p);
  EXPECT_EQ(plan.version, DELTAREF_V6) << plan.reason;
  EXPECT_EQ(plan.workspace, 256 + 4 * (2 * plan.segments - 3) * 128 * 128 * 4);
}

/// Bytes of shared memory of the largest block that a plan launches.
std::int64_t shared_memory(const deltaref_gpu_problem& p, const deltaref_gpu_plan_t& plan) {
  switch (plan.version) {
    case DELTAREF_V3:
      return v3_shared(plan.chunk, p.d_k, p.dtype == DELTAREF_FP64 ? 8 : 4);
    case DELTAREF_V4:
      return v4_shared(p.d_k, plan.rows, p.rule == DELTAREF_KDA, plan.stages);
    case DELTAREF_V5:
    case DELTAREF_V6:
      return v5_shared(p.d_k, plan.rows, plan.stages);
    case DELTAREF_V7:
      return v7_shared(p.d_k, p.d_v);
    default:
      return 0;
  }
}

TEST(Memory, NoKernelAsksForMoreSharedMemoryThanTheDeviceHas) {
  std::map<std::int32_t, int> seen;
  for (const auto& device : {kH200, kA100, kAda})
    for (const std::int64_t d_k : {16, 64, 100, 128, 256})
      for (const std::int64_t d_v : {64, 128, 256})
        for (const std::int64_t B : {1, 2, 40})
          for (int dtype = 0; dtype <= DELTAREF_FP64; ++dtype)
            for (int rule = 0; rule <= DELTAREF_KDA; ++rule)
              for (const std::int32_t rows : {0, 16, 64, 128}) {
                deltaref_gpu_problem p = sound();
                p.rule = rule, p.dtype = dtype, p.B = B, p.d_k = d_k, p.d_v = d_v, p.rows = rows;
                p.g = p.beta = p.lambda = {};
                p.q = p.k = contiguous(p.q.data, p.T, p.H, d_k), p.v = p.o = contiguous(p.v.data, p.T, p.HV, d_v);
                const deltaref_gpu_plan_t plan = planned(p, device);
                ++seen[plan.version];
                EXPECT_LE(shared_memory(p, plan), device.shared_memory) << plan.reason;
                if (plan.version >= DELTAREF_V4) {
                  EXPECT_GE(plan.stages, 2);
                }
              }
  for (const auto version : {DELTAREF_V2, DELTAREF_V3, DELTAREF_V4, DELTAREF_V5, DELTAREF_V7})
    EXPECT_GT(seen[version], 0) << version;
}

TEST(Memory, StagesAreAsManyAsFit) {
  auto stages = [](std::int64_t d_k, std::int32_t rows, std::int64_t d_v = 128) {
    deltaref_gpu_problem p = hopper(100, d_v);
    p.d_k = d_k, p.rows = rows, p.q = p.k = contiguous(p.q.data, p.T, p.H, d_k);
    return planned(p).stages;
  };
  EXPECT_EQ(stages(128, 128), 2);
  EXPECT_EQ(stages(128, 64), 3);
  EXPECT_EQ(stages(64, 128), 3);
  EXPECT_EQ(stages(64, 64), 4);
  EXPECT_EQ(stages(64, 64, 64), kV5Teams) << "a chain with more stages than its one producer has teams waits for ever";
  EXPECT_EQ(v5_chain_shared(128, 64, 3), kH200.shared_memory) << "to the last byte";
  deltaref_gpu_device_t smaller = kH200;
  smaller.shared_memory = kV5ProducerShared - 1;  // a chain of two stages would fit
  EXPECT_THAT(refused(hopper(12), DELTAREF_UNSUPPORTED, smaller), HasSubstr("bytes of shared memory"));
}

TEST(Memory, V4TakesFewerRowsWhereMoreDoNotFit) {
  deltaref_gpu_problem p = hopper(100);
  p.version = DELTAREF_V4, p.g = p.beta = p.lambda = {};
  EXPECT_EQ(planned(p, kH200).rows, 64);
  EXPECT_EQ(planned(p, kA100).rows, 32);
  p.rule = DELTAREF_KDA;
  EXPECT_EQ(planned(p, kA100).rows, 16);
}

TEST(Memory, V5HasNoWorkspaceButTheOffsets) {
  deltaref_gpu_problem p = hopper(100);
  p.B = 8, p.T = 4096;
  EXPECT_EQ(planned(p).workspace, 0);
  const std::vector<std::int64_t> offsets(33);  // 33 numbers of 8 bytes
  p.B = 1, p.cu_seqlens = offsets.data(), p.sequences = 32;
  EXPECT_EQ(planned(p).workspace, 512);
  p.sequences = 31;
  EXPECT_EQ(planned(p).workspace, 256);
}

TEST(Memory, EveryChunkHasASlotOfItsOwn) {
  for (const std::vector<std::int64_t>& offsets :
       {std::vector<std::int64_t>{0, 5, 5, 69, 130}, {0, 64, 128}, {0, 0, 0}, {0, 63, 64, 65, 200}, {0, 1, 2, 3, 4}}) {
    deltaref_gpu_problem p = sound();
    p.B = 1, p.T = 200, p.cu_seqlens = offsets.data(), p.sequences = static_cast<std::int64_t>(offsets.size()) - 1;
    std::set<std::int64_t> seen;
    for (std::int64_t n = 0; n < p.sequences; ++n)
      for (std::int64_t c = 0; c * 64 < offsets[n + 1] - offsets[n]; ++c) {
        const std::int64_t slot = offsets[n] / 64 + n + c;
        EXPECT_TRUE(seen.insert(slot).second) << "slot " << slot << " twice";
        EXPECT_LT(slot, slots(p, 64));
      }
  }
}

TEST(Memory, SizesAre64BitsWide) {
  deltaref_gpu_problem p = sound();
  p.version = DELTAREF_V4, p.B = 64, p.T = 1 << 17, p.H = p.HV = 64, p.d_v = 128;
  EXPECT_GT(planned(p).workspace, std::uint64_t{1} << 32);
}

TEST(Sentences, EveryStatusHasAText) {
  for (int s = DELTAREF_OK; s <= DELTAREF_CUDA_ERROR; ++s)
    EXPECT_STRNE(deltaref_gpu_status_text(static_cast<deltaref_status>(s)), "unknown status");
  EXPECT_STREQ(deltaref_gpu_status_text(static_cast<deltaref_status>(99)), "unknown status");
  EXPECT_STREQ(deltaref_gpu_rule_name(DELTAREF_Q_DELTA), "q_delta");
  EXPECT_STREQ(deltaref_gpu_rule_name(-1), "unknown rule");
  EXPECT_STREQ(deltaref_gpu_version_name(DELTAREF_V7), "v7 (one multiprocessor a head)");
  EXPECT_STREQ(deltaref_gpu_version_name(17), "unknown version");
}

TEST(Sentences, WithoutADeviceTheyAreWordsAndNotACode) {
  char text[256] = "";
  const deltaref_status status = deltaref_gpu_device(nullptr, text, sizeof text);
  if (status == DELTAREF_OK) GTEST_SKIP() << "there is a GPU here: " << text;
  EXPECT_EQ(status, DELTAREF_NO_DEVICE);
  EXPECT_THAT(std::string(text), HasSubstr("CPU path"));
  const deltaref_gpu_problem p = sound();
  EXPECT_EQ(deltaref_gpu_run(&p, nullptr, 0, nullptr), DELTAREF_NO_DEVICE);
  try {
    run(p, nullptr, 0);
    FAIL() << "the C++ wrapper must throw";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, DELTAREF_NO_DEVICE);
    EXPECT_THAT(e.what(), HasSubstr("no GPU to use"));
  }
}

/// The evidence belongs to the sources as they are: changing a kernel asks for a new run on a GPU.
TEST(Evidence, BelongsToTheseSources) {
  const std::filesystem::path folder = DELTAREF_GPU_SOURCES;
  std::array<char, 65> now{};
  FILE* const pipe = popen(("'" + (folder / "hash.sh").string() + "'").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  const bool read = std::fread(now.data(), 1, 64, pipe) == 64;
  pclose(pipe);
  ASSERT_TRUE(read);
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder / "evidence")) {
    if (file.path().extension() != ".json") continue;
    ++files;
    std::ifstream in(file.path());
    const auto evidence = nlohmann::json::parse(in);
    EXPECT_EQ(evidence.at("sources_sha256"), now.data())
        << file.path().filename() << " was measured on other sources: run ./run gpu on that device again";
    EXPECT_FALSE(evidence.at("checks").empty());
    for (const auto& row : evidence.at("checks")) EXPECT_NE(row.at("verdict"), "failed");
  }
  if (files == 0) GTEST_SKIP() << "no evidence yet";
}

}  // namespace
}  // namespace delta::gpu
