// SPDX-License-Identifier: Apache-2.0
// Dumps that are made: a problem, a kernel that computes it, and the file that such a kernel leaves.
#pragma once
#include <functional>

#include "checks/core/families.hpp"
#include "checks/core/measure.hpp"
#include "checks/dump/dump.hpp"
#include "checks/verify/rounded_adjoint.hpp"
#include "checks/verify/verify.hpp"
#include "reference/gradient/gradient.hpp"

namespace delta {

using Kernel = std::function<Output<double>(const Stream<double>&, double scale)>;

inline Output<double> exactly(const Stream<double>& st, double scale) {
  const Output<double> o = recurrent<double>(st);
  return {scale * o.O, o.S};
}
inline Kernel scheduled(const Schedule& how) {
  return [how](const Stream<double>& st, double scale) { return simulate<float>(st, scale, how); };
}

/// The backward pass of a kernel: the gradient with respect to a stream whose Q is not scaled.
using Backward = std::function<StreamAdjoint<double>(const Stream<double>&, double scale, const Mat<double>& dO,
                                                     const Mat<double>& dS)>;

inline StreamAdjoint<double> exact_gradient(const Stream<double>& st, double scale, const Mat<double>& dO,
                                            const Mat<double>& dS) {
  return recurrent_adjoint<double>(st, scale * dO, dS);
}
inline Backward scheduled_gradient(const Schedule& how) {
  return [how](const Stream<double>& st, double scale, const Mat<double>& dO, const Mat<double>& dS) {
    return simulate_adjoint<float>(st, scale, dO, dS, how);
  };
}

/// A problem, a kernel that computes it, and the types that its tensors are stored in.
struct Call {
  const Rule* rule;
  Problem<double> p;
  Dtype inputs = Dtype::bf16, o = Dtype::bf16, state = Dtype::fp32;

  /// The problem as its file holds it. Kernels take that: a number below the range of fp16 loses digits in the file.
  Problem<double> held() const {
    Problem<double> h = p;
    const auto round = [&](Tensor<double>& x) {
      for (double& y : x.data) y = format(inputs).round(y);
    };
    for (Tensor<double>* x : {&h.q, &h.k, &h.v, &h.beta, &h.lambda}) round(*x);
    for (Tensor<double>& x : h.inputs) round(x);
    return h;
  }

  Dump dump(const Kernel& kernel) const {
    Problem<double> unscaled = held();
    unscaled.scale = 1;
    return dump(run<double>(rule->info, rule->over<double>(), unscaled,
                            [&](const Stream<double>& s) { return kernel(s, p.scale); }));
  }

  /// What a form computes, or a mutant.
  Dump dump_of(std::string_view form, Index C = 64) const { return dump(compute<double>(*rule, form, C, held())); }

  Dump dump(const Result<double>& result) const {
    const Shape& z = p.shape;
    Dump d{.file = "made"};
    auto add = [&](const char* name, const Tensor<double>& x, Dtype dtype) {
      if (x.empty()) return;
      std::vector<std::int64_t> shape{x.B, x.tokens, x.heads};
      if (x.cols > 1 || *name == 'q' || *name == 'k' || *name == 'v') shape.push_back(x.cols);
      d.add(name, dtype, shape, x.data);
    };
    add("q", p.q, inputs), add("k", p.k, inputs), add("v", p.v, inputs), add("beta", p.beta, inputs);
    add("alpha", p.alpha, wide()), add("lambda", p.lambda, inputs);
    for (std::size_t i = 0; i < p.inputs.size(); ++i) {
      const Tensor<double>& x = p.inputs[i];
      std::vector<std::int64_t> shape{x.B, x.tokens, x.heads};
      if (rule->info.inputs[i].more) shape.push_back(x.rows);
      if (rule->info.inputs[i].extent != Extent::one) shape.push_back(x.cols);
      d.add(std::string(rule->info.inputs[i].name), inputs, shape, x.data);
    }
    std::vector<double> o_data(static_cast<std::size_t>(z.B * z.T * z.HV * z.d_v)), S0, S;
    for (Index n = 0; n < z.sequences(); ++n)
      for (Index j = 0; j < z.HV; ++j) {
        const Output<double>& lane = result[static_cast<std::size_t>(n * z.HV + j)];
        for (Index t = 0; t < z.length(n); ++t)
          for (Index c = 0; c < z.d_v; ++c)
            o_data[static_cast<std::size_t>(((z.batch(n) * z.T + z.begin(n) + t) * z.HV + j) * z.d_v + c)] =
                lane.O(t, c);
        const Mat<double> h0 = p.initial_state(n, j);
        for (Index k = 0; k < z.d_k; ++k)
          for (Index v = 0; v < z.d_v; ++v) S0.push_back(h0(v, k)), S.push_back(lane.S(v, k));
      }
    d.add("o", o, {z.B, z.T, z.HV, z.d_v}, o_data);
    d.add("initial_state", wide(), {z.sequences(), z.HV, z.d_k, z.d_v}, S0);
    d.add("final_state", state, {z.sequences(), z.HV, z.d_k, z.d_v}, S);
    if (!z.offsets.empty())
      d.add("cu_seqlens", Dtype::i32, {z.sequences() + 1}, std::vector<double>(z.offsets.begin(), z.offsets.end()));
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", p.scale);
    d.metadata = {{"rule", std::string(rule->info.id)}, {"scale", text}, {"state_layout", "kv"}};
    if (p.l2norm) {
      std::snprintf(text, sizeof text, "%.17g", *p.l2norm);
      d.metadata["qk_l2norm"] = text;
    }
    return d;
  }

  /// The same with what the backward pass was given and what it returned.
  Dump dump(const Kernel& kernel, const Backward& backward, std::uint64_t seed = 1) const {
    Dump out = dump(kernel);
    const Shape& z = p.shape;
    Random r(seed);
    Result<double> given;
    for (Index n = 0; n < z.sequences(); ++n)
      for (Index j = 0; j < z.HV; ++j) {
        given.push_back({Mat<double>(z.length(n), z.d_v), Mat<double>(z.d_v, z.d_k)});
        for (double& x : given.back().O.reshaped()) x = format(o).round(kBf16.round(r.normal()));
        for (double& x : given.back().S.reshaped()) x = kBf16.round(r.normal());
      }
    Problem<double> unscaled = held();
    unscaled.scale = 1;
    Problem<double> g = gradient<double>(rule->info, rule->over<double>(), unscaled, given,
                                         [&](const Stream<double>& s, const Mat<double>& dO, const Mat<double>& dS) {
                                           return backward(s, p.scale, dO, dS);
                                         });
    for (std::size_t i = 0; i < g.alpha.data.size(); ++i) g.alpha.data[i] *= p.alpha.data[i];  // of ln alpha
    const auto add = [&](const char* name, const Tensor<double>& x, Dtype dtype) {
      if (x.empty()) return;
      std::vector<std::int64_t> shape{x.B, x.tokens, x.heads};
      if (out.find(name + 1)->shape.size() == 4) shape.push_back(x.cols);
      out.add(name, dtype, shape, x.data);
    };
    add("dq", g.q, o), add("dk", g.k, o), add("dv", g.v, o);
    add("dbeta", g.beta, wide()), add("dlambda", g.lambda, wide());
    if (!g.alpha.empty()) out.add("dg", wide(), out.find("alpha")->shape, g.alpha.data);

    std::vector<double> dO(static_cast<std::size_t>(z.B * z.T * z.HV * z.d_v)), dS, dS0;
    for (Index n = 0; n < z.sequences(); ++n)
      for (Index j = 0; j < z.HV; ++j) {
        const auto lane = static_cast<std::size_t>(n * z.HV + j);
        for (Index t = 0; t < z.length(n); ++t)
          for (Index c = 0; c < z.d_v; ++c)
            dO[static_cast<std::size_t>(((z.batch(n) * z.T + z.begin(n) + t) * z.HV + j) * z.d_v + c)] =
                given[lane].O(t, c);
        for (Index k = 0; k < z.d_k; ++k)
          for (Index v = 0; v < z.d_v; ++v) dS.push_back(given[lane].S(v, k)), dS0.push_back(g.S0[lane](v, k));
      }
    out.add("do", o, {z.B, z.T, z.HV, z.d_v}, dO);
    out.add("d_final_state", wide(), {z.sequences(), z.HV, z.d_k, z.d_v}, dS);
    out.add("d_initial_state", wide(), {z.sequences(), z.HV, z.d_k, z.d_v}, dS0);
    return out;
  }
  static const Format& format(Dtype d) {
    return d == Dtype::bf16 ? kBf16 : d == Dtype::fp16 ? kFp16 : d == Dtype::fp32 ? kFp32 : kFp64;
  }
  Dtype wide() const { return inputs == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32; }
};

inline Call call(std::string_view rule = "gated_delta", std::string_view family = "gate_half", std::uint64_t seed = 1,
                 Shape shape = {.B = 1, .T = 70, .H = 1, .HV = 2, .d_k = 16, .d_v = 12, .n_h = 2, .offsets = {}}) {
  const Rule& r = *find_rule(rule);
  return {&r, draw(r.info, *find_family(family), shape, seed)};
}

inline FileVerdict judged(const Dump& d) { return verify(d, {}, 2); }
inline FileVerdict judged(const Call& c, const Kernel& k) { return judged(c.dump(k)); }

/// One of the dumps of real and of mistaken kernels.
inline FileVerdict of_file(const std::string& file) {
  return verify_file(DELTAREF_DUMPS "/" + file + ".safetensors", {}, 2);
}

/// Changes some elements of a tensor of a dump.
inline void edit(Dump& d, const std::string& name, const std::function<void(std::vector<double>&)>& change) {
  const DumpTensor t = *d.find(name);
  std::vector<double> x(static_cast<std::size_t>(t.size()));
  t.read(0, x);
  change(x);
  d.add(name, t.dtype, t.shape, x);
}

}  // namespace delta
