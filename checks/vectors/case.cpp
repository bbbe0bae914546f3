// SPDX-License-Identifier: Apache-2.0
#include "checks/vectors/case.hpp"

#include <algorithm>
#include <filesystem>

#include "checks/vectors/write.hpp"

namespace delta {
namespace {

/// A form in one scalar, and what it showed.
struct Ran {
  Result<double> result;
  Intermediates shown;
};

template <Ring T> Ran ran(const Rule& rule, const Row& r, Index C, const Problem<double>& p) {
  Ran out;
  for (const Output<T>& lane : compute_watched<T>(rule, r.form, C, over<T>(p), out.shown)) {
    auto narrow = [](const Mat<T>& A) {
      return Mat<double>(A.unaryExpr([](const T& x) { return convert<double>(x); }).template cast<double>());
    };
    out.result.push_back({narrow(lane.O), narrow(lane.S)});
  }
  return out;
}

struct Scale {
  std::string_view scalar;
  Ran (*run)(const Rule&, const Row&, Index, const Problem<double>&);
  const Format* format;  ///< of the roundings, nullptr where the scalar is one of its own
  Dtype stored;
};
constexpr Scale kScales[] = {
    {"rational", ran<Rational>, nullptr, Dtype::fp64}, {"gf61", ran<Mp50>, nullptr, Dtype::fp64},
    {"dual", ran<Mp50>, nullptr, Dtype::fp64},         {"mp50", ran<Mp50>, nullptr, Dtype::fp64},
    {"dd", ran<DoubleDouble>, nullptr, Dtype::fp64},   {"double", ran<double>, nullptr, Dtype::fp64},
    {"fp32", ran<AnyFormat>, &kFp32, Dtype::fp32},     {"tf32", ran<AnyFormat>, &kTf32, Dtype::fp32},
    {"fp16", ran<AnyFormat>, &kFp16, Dtype::fp16},     {"bf16", ran<AnyFormat>, &kBf16, Dtype::bf16}};

}  // namespace

std::string write_case(const Row& r, const std::string& directory) {
  const Rule& rule = *find_rule(r.rule);
  const Size size = Size::parse(r.shape);
  const Problem<double> p = draw(rule.info, *find_family(r.family), size, r.seed);
  if (!applies(rule, r.form, p))
    throw UsageError("--dump: the form " + r.form + " does not apply to " + r.rule + "; try --form one_solve");
  const Scale& how = *std::ranges::find(kScales, std::string_view(r.scalar), &Scale::scalar);
  const Working::Scope scope(how.format ? *how.format : kFp64);
  const Ran made = how.run(rule, r, size.C, p);

  const bool wide = how.stored == Dtype::fp64;
  Dump d = dump_of(rule, p, {.rows = how.stored, .numbers = wide ? Dtype::fp64 : Dtype::fp32});
  add_result(d, size.shape, made.result, how.stored, wide ? Dtype::fp64 : Dtype::fp32, true);
  add_intermediates(d, size.shape, r.form, made.shown);
  d.metadata["note"] = r.form + " over " + r.scalar + ", family " + r.family + ", seed " + std::to_string(r.seed);

  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw UsageError(directory + ": cannot make the directory: " + error.message() + "; try another --dump");
  const std::string file = r.rule + "_" + r.form + "_" + r.scalar + "_" + r.family + "_" + r.shape + "_seed" +
                           std::to_string(r.seed) + ".safetensors";
  const std::string path = (std::filesystem::path(directory) / file).string();
  save(d, path);
  return path;
}

}  // namespace delta
