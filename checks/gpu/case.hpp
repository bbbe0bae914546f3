// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "checks/core/families.hpp"
#include "checks/core/measure.hpp"
#include "checks/gpu/checks.hpp"
#include "checks/gpu/kernel.hpp"
#include "gpu/schedule/producer.hpp"

namespace delta::gpu {

/// How the numbers of a problem are handed over.
enum class Variant { plain, log_gate, l2norm };

/// One rule on one family at one size: what the kernels are given, what it means, and the exact answer.
struct Case {
  const Rule& rule;
  const Family& family;
  Variant variant;
  Problem<double> given, meant;  ///< they differ where rows are still to be normalised
  Result<DoubleDouble> exact;

  Case(const Rule& rule, const Family& family, const Size& size, std::uint64_t seed, Variant variant = Variant::plain);

  const Shape& shape() const { return given.shape; }
  bool per_channel() const { return rule.info.forget == Forget::per_channel; }
  /// Whether the version has this rule and these widths in that type, on the device that is here.
  bool served(std::int32_t version, std::int32_t dtype) const;

  /// The recurrence of value head h of sequence n.
  template <Ring T> Stream<T> stream(Index n, Index h) const {
    return delta::stream(rule.info, rule.over<T>(), over<T>(meant), n, h);
  }
  /// The same as the schedule of v5 takes it. \pre !per_channel()
  Head<double> head(Index n, Index h) const;

  /// How it is handed to a kernel.
  Call call(std::int32_t version, std::int32_t dtype, std::int32_t segments = 0) const;
  /// A row about such a call, without a verdict.
  Row row(const Call& call, const std::string& what) const;
};

/// A row judged by an error and what is allowed of it.
Row judged(Row row, double error, double allowed);

const Format& format_of(std::int32_t dtype);
/// Of gates, strengths, states and traces.
const Format& wide_format(std::int32_t dtype);

/// Whether the device runs what is written for Hopper.
bool hopper_is_here();

}  // namespace delta::gpu
