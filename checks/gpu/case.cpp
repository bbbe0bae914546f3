// SPDX-License-Identifier: Apache-2.0
#include "checks/gpu/case.hpp"

namespace delta::gpu {
namespace {

constexpr double kNormEps = 1e-6;  ///< what run_on_device asks for

double norm(const double* row, Index length) {
  double sum = kNormEps;
  for (Index i = 0; i < length; ++i) sum += row[i] * row[i];
  return std::sqrt(sum);
}

}  // namespace

Case::Case(const Rule& r, const Family& f, const Size& size, std::uint64_t seed, Variant v)
    : rule(r), family(f), variant(v), given(draw(r.info, f, size, seed)) {
  if (variant == Variant::log_gate)  // what a logarithm in fp32 stands for
    for (double& alpha : given.alpha.data) alpha = std::exp(static_cast<double>(static_cast<float>(std::log(alpha))));
  meant = given;
  if (variant == Variant::l2norm)
    for (Tensor<double>* x : {&meant.q, &meant.k})
      for (std::size_t row = 0; row < x->data.size(); row += static_cast<std::size_t>(x->cols)) {
        const double length = norm(&x->data[row], x->cols);
        for (Index i = 0; i < x->cols; ++i) x->data[row + static_cast<std::size_t>(i)] /= length;
      }
  exact = compute_paper<DoubleDouble>(rule, over<DoubleDouble>(meant));
}

bool Case::served(std::int32_t version, std::int32_t dtype) const {
  const Shape& z = shape();
  if ((version == DELTAREF_V3 || version >= DELTAREF_V5) && per_channel()) return false;
  if (version >= DELTAREF_V5 && !hopper_is_here()) return false;
  if (version == DELTAREF_V6 && z.d_k != z.d_v) return false;
  if (version >= DELTAREF_V4)
    return dtype <= DELTAREF_FP16 && (z.d_k == 64 || z.d_k == 128) && (z.d_v == 64 || z.d_v == 128);
  return true;
}

Head<double> Case::head(Index n, Index h) const {
  Head<double> x = gpu::head(rule.info, given, n, h);
  if (variant == Variant::l2norm)
    for (Index t = 0; t < x.tokens(); ++t) {
      const Vec<double> q = x.Q.row(t).transpose(), k = x.K.row(t).transpose();
      x.q_norm[t] = 1 / norm(q.data(), q.size()), x.k_norm[t] = 1 / norm(k.data(), k.size());
    }
  return x;
}

Call Case::call(std::int32_t version, std::int32_t dtype, std::int32_t segments) const {
  return {.version = version,
          .dtype = dtype,
          .segments = segments,
          .log_gate = variant == Variant::log_gate,
          .l2norm = variant == Variant::l2norm};
}

Row Case::row(const Call& call, const std::string& what) const {
  return {.kernel = "v" + std::to_string(call.version),
          .rule = std::string(rule.info.id),
          .family = std::string(family.name),
          .shape = shape().text(),
          .dtype = std::string(dtype_name(call.dtype)),
          .what = what + (call.log_gate ? "; log decay" : "") + (call.l2norm ? "; l2norm" : "") +
                  (call.segments ? "; " + std::to_string(call.segments) + " segments" : ""),
          .reason = ""};
}

const Format& format_of(std::int32_t dtype) {
  static constexpr const Format* formats[] = {&kBf16, &kFp16, &kFp32, &kFp64};
  return *formats[dtype];
}

const Format& wide_format(std::int32_t dtype) { return dtype == DELTAREF_FP64 ? kFp64 : kFp32; }

bool hopper_is_here() {
  static const bool hopper = device().compute_capability == 90;
  return hopper;
}

Row judged(Row row, double error, double allowed) {
  if (!(allowed < kIllPosed)) {
    row.verdict = Verdict::untrusted, row.ratio = NAN, row.reason = "ill-posed in this precision";
  } else {
    row.ratio = ratio_of(error, allowed);
    row.verdict = judge(row.ratio);
  }
  return row;
}

}  // namespace delta::gpu
