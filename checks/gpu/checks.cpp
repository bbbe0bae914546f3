// SPDX-License-Identifier: Apache-2.0
#include "checks/gpu/checks.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "checks/core/families.hpp"
#include "checks/core/measure.hpp"
#include "checks/gpu/kernel.hpp"
#include "gpu/schedule/hopper.hpp"
#include "gpu/schedule/tensor_cores.hpp"

namespace delta::gpu {
namespace {

constexpr Format draw_format(int p) { return {"draw", p, -1022, 1023}; }
/// Each is a draw of the rounding errors of correct code; errors scale with 2^-p.
constexpr Format kDraws[] = {draw_format(19), draw_format(21), draw_format(23), draw_format(25)};
constexpr double kFloor = 1;  ///< of any error, in units of the unit roundoff
/// v4 beside what its 16-bit operands make, in units of fp32: tensor cores truncate where they align the products of a
/// sum, the inverse works on pairs of tf32 numbers (21 bits), and 2^x is one instruction of 2 ulp.
constexpr double kTensorCoreSums = 8, kTensorCoreFloor = 64;

const Format& format_of(std::int32_t dtype) {
  static constexpr const Format* formats[] = {&kBf16, &kFp16, &kFp32, &kFp64};
  return *formats[dtype];
}

bool holds(const Problem<double>& p, const Format& f) {
  auto fits = [&](double x) { return std::isnan(x) || f.round(x) == x; };
  return std::ranges::all_of(p.q.data, fits) && std::ranges::all_of(p.k.data, fits) &&
         std::ranges::all_of(p.v.data, fits);
}

/// The largest entry by which two matrices differ, over the largest entry wanted.
double apart(const Mat<double>& want, const Mat<double>& got) {
  if (want.size() == 0) return 0;
  if (!got.allFinite()) return INFINITY;
  const double size = want.cwiseAbs().maxCoeff(), difference = (got - want).cwiseAbs().maxCoeff();
  return difference == 0 ? 0 : difference / size;
}

using Quantities = std::map<std::string, Mat<double>>;  ///< by the name of deltaref_gpu_trace, chunks below each other

template <Ring T> Mat<double> as_double(const Mat<T>& A) {
  return A.unaryExpr([](const T& x) { return Scalar<T>::to_double(x); });
}

void append(Mat<double>& all, const Mat<double>& more) {
  Mat<double> joined(all.rows() + more.rows(), more.cols());
  if (all.size()) joined.topRows(all.rows()) = all;
  joined.bottomRows(more.rows()) = more;
  all = std::move(joined);
}

/// The recurrence with every sum taken in v1's order, one product after the other.
template <Ring T> Output<T> token_by_token(const Stream<T>& s, Quantities* watch = nullptr) {
  Output<T> out{Mat<T>(s.tokens(), s.d_v()), s.S0};
  Mat<T> prior(s.tokens(), s.d_v()), posterior = prior, states(s.tokens() * s.d_v(), s.d_k());
  for (Index t = 0; t < s.tokens(); ++t) {
    const MicroStep<T>& m = s.steps[static_cast<std::size_t>(t)];
    for (Index i = 0; i < s.d_v(); ++i) {
      T prediction = T(0), o = T(0), after = T(0);
      for (Index j = 0; j < s.d_k(); ++j) out.S(i, j) *= m.d[j], prediction += out.S(i, j) * m.x[j];
      const T e = m.v[i] - prediction;
      for (Index j = 0; j < s.d_k(); ++j) {
        out.S(i, j) += m.beta * e * m.y[j];
        o += out.S(i, j) * s.Q(t, j), after += out.S(i, j) * m.x[j];
      }
      out.O(t, i) = o, prior(t, i) = e, posterior(t, i) = m.v[i] - after;
    }
    if (watch) states.middleRows(t * s.d_v(), s.d_v()) = out.S;
  }
  if (watch)
    *watch = {
        {"e_prior", as_double<T>(prior)}, {"e_posterior", as_double<T>(posterior)}, {"states", as_double<T>(states)}};
  return out;
}

/// What v3 can show, by the CPU's chunk form over T.
template <Ring T> Quantities chunk_quantities(const Stream<T>& s, Index C) {
  Quantities q;
  chunkwise<T>(s, C, [&](const Chunk<T>& h) {
    append(q["gamma"], as_double<T>(h.gamma));
    append(q["W"], as_double<T>(h.W)), append(q["U"], as_double<T>(h.U));
    append(q["Z"], as_double<T>(h.Z)), append(q["S"], as_double<T>(h.S));
    Mat<double> L = Mat<double>::Zero(h.L_g.rows(), C), I = L;
    L.leftCols(h.L_g.cols()) = as_double<T>(h.L_g);
    I.leftCols(h.L_g.cols()) = as_double<T>(solve_unit_lower<T>(h.L_g, Mat<T>::Identity(h.L_g.rows(), h.L_g.cols())));
    append(q["L_g"], L), append(q["inverse"], I);
  });
  return q;
}

/// What v4 can show, by the CPU's form with one solve: there D_g W is what its inverse gives.
template <Ring T> Quantities solve_quantities(const Stream<T>& s, bool per_channel) {
  constexpr Index C = 64;
  Quantities q;
  one_solve<T>(s, C, [&](const OneSolve<T>& h) {
    const Index c = h.L.rows();
    Mat<double> L = Mat<double>::Zero(c, C), I = L;
    L.leftCols(c) = as_double<T>(h.L);
    I.leftCols(c) = as_double<T>(solve_unit_lower<T>(h.L, Mat<T>::Identity(c, c)));
    append(q["L_g"], L), append(q["inverse"], I);
    append(q["W"], as_double<T>(solve_unit_lower<T>(h.L, h.P_bar)));
    append(q["U"], as_double<T>(solve_unit_lower<T>(h.L, h.U)));
    append(q["Z"], as_double<T>(h.Z)), append(q["S"], as_double<T>(h.S));
  });
  if (!per_channel)
    for (Index begin = 0; begin < s.tokens(); begin += C) {
      Vec<T> gamma(std::min(C, s.tokens() - begin));
      for (Index i = 0; i < gamma.size(); ++i) gamma[i] = (i ? gamma[i - 1] : T(1)) * s.steps[begin + i].d[0];
      append(q["gamma"], as_double<T>(gamma));
    }
  return q;
}

/// L and its inverse, as wide as a kernel writes them.
void append_square(Quantities& q, Index C, const Mat<double>& L, const Mat<double>& inverse) {
  Mat<double> wide = Mat<double>::Zero(L.rows(), C);
  wide.leftCols(L.cols()) = L, append(q["L_g"], wide);
  wide.leftCols(L.cols()) = inverse, append(q["inverse"], wide);
}

/// What v4 shows, by its schedule.
Quantities tensor_core_quantities(const Stream<double>& s, const Format& f, bool per_channel) {
  Quantities q;
  tensor_cores(s, f, [&](const TensorCoreChunk& h) {
    append_square(q, 64, h.L_g, h.inverse);
    append(q["W"], h.W), append(q["U"], h.U), append(q["Z"], h.Z), append(q["S"], h.S);
    if (!per_channel) append(q["gamma"], h.gamma);
  });
  return q;
}

/// What v5 shows, by its schedule.
Quantities hopper_quantities(const Head<double>& head, const Format& f) {
  Quantities q;
  hopper(head, SixteenBits{f}, 1, {}, [&](const Walked<double>& h) {
    append_square(q, 64, h.prepared.L_g, h.prepared.A);
    append(q["W"], h.prepared.W), append(q["Z"], h.Z), append(q["S"], h.S), append(q["gamma"], h.prepared.gamma);
  });
  return q;
}

/// The same out of a kernel's trace, for one sequence and head.
Quantities traced(const Answer& a, const Shape& z, Index n, Index h) {
  Quantities q;
  const Index C = a.plan.chunk, first = z.offsets.empty() ? n * z.T : z.begin(n), slot = first / C + n;
  for (const auto& [name, x] : a.traces) {
    const Index columns = name == "gamma"                      ? 1
                          : name == "L_g" || name == "inverse" ? C
                          : name == "W" || name == "S"         ? z.d_k
                                                               : z.d_v;
    for (Index begin = 0, c = 0; begin < z.length(n); begin += C, ++c) {
      const Index rows = name == "S" ? z.d_v : std::min(C, z.length(n) - begin), height = name == "S" ? z.d_v : C;
      using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
      const double* const at = x.data() + ((slot + c) * z.HV + h) * height * columns;
      append(q[name], Mat<double>(Eigen::Map<const RowMajor>(at, rows, columns)));
    }
  }
  return q;
}

bool runs_v5() {
  static const bool hopper = device().compute_capability == 90;
  return hopper;
}

/// One rule on one family at one size.
class Case {
 public:
  enum Variant { plain, log_gate, l2norm };
  Case(const Rule& rule, const Family& family, Size size, const Selection& what,
       const std::function<void(const Row&)>& report, Variant variant = plain)
      : rule_(rule),
        family_(family),
        size_(std::move(size)),
        report_(report),
        p_(draw(rule.info, family, size_, what.seed)) {
    // The kernel gets p_, the reference r_: what the numbers mean.
    if (variant == log_gate)
      for (double& alpha : p_.alpha.data) alpha = std::exp(static_cast<double>(static_cast<float>(std::log(alpha))));
    r_ = p_;
    if (variant == l2norm)
      for (Tensor<double>* x : {&r_.q, &r_.k})
        for (std::size_t r = 0; r < x->data.size(); r += static_cast<std::size_t>(x->cols)) {
          double sum = 1e-6;
          for (Index i = 0; i < x->cols; ++i)
            sum += x->data[r + static_cast<std::size_t>(i)] * x->data[r + static_cast<std::size_t>(i)];
          for (Index i = 0; i < x->cols; ++i) x->data[r + static_cast<std::size_t>(i)] /= std::sqrt(sum);
        }
    wanted_ = compute_paper<DoubleDouble>(rule, over<DoubleDouble>(r_));
  }

  bool takes(std::int32_t version, std::int32_t dtype) const {
    const Shape& z = p_.shape;
    const bool per_channel = rule_.info.forget == Forget::per_channel;
    if ((version == DELTAREF_V3 || version == DELTAREF_V5) && per_channel) return false;
    if (version == DELTAREF_V5 && !runs_v5()) return false;
    if (version >= DELTAREF_V4)
      return dtype <= DELTAREF_FP16 && (z.d_k == 64 || z.d_k == 128) && (z.d_v == 64 || z.d_v == 128);
    return true;
  }

  /// The answer, judged by the error that this kind of code makes in this precision. \return the answer
  Answer outputs(const Call& call, const std::string& what = "o, state") {
    Row row = blank(call, what);
    const Answer got = run_on_device(rule_.info, p_, call);
    row.kernel = "v" + std::to_string(got.plan.version);
    if (!got.untouched) {
      row.verdict = Verdict::failed, row.ratio = INFINITY, row.reason = "wrote outside its outputs";
      return report_(row), got;
    }
    if (const std::string why = outside(got.plan.version, call.dtype, got.plan.chunk); !why.empty()) {
      row.verdict = Verdict::untrusted, row.ratio = NAN, row.reason = why;
      return report_(row), got;
    }
    Expected e = expected(got.plan.version, call.dtype, got.plan.chunk);
    if (call.l2norm && got.plan.version >= DELTAREF_V4)  // the norm is a factor of what is written, and that is rounded
      e.o += format_of(call.dtype).unit(), e.state += format_of(call.dtype).unit();
    if (!(std::max(e.o, e.state) < 0.1)) {
      row.verdict = Verdict::untrusted, row.ratio = NAN, row.reason = "ill-posed in this precision";
      return report_(row), got;
    }
    const Comparison c = compare(wanted_, got.result, e);
    row.ratio = c.ratio, row.verdict = c.verdict, row.reason = c.reason;
    if (c.verdict == Verdict::failed && c.distance.worst) {
      const Place& w = *c.distance.worst;
      row.reason += ": " + std::string(w.tensor) + "[" + std::to_string(w.row) + "," + std::to_string(w.column) +
                    "] of lane " + std::to_string(w.lane) + ", want " + std::to_string(w.want) + ", got " +
                    std::to_string(w.got);
    }
    report_(row);
    return got;
  }

  /// A law: an answer equal to another bit for bit.
  void same(const Call& call, const std::string& law, bool equal) {
    Row row = blank(call, law);
    row.kernel = "v" + std::to_string(call.version);
    row.verdict = equal ? Verdict::passed : Verdict::failed;
    row.ratio = equal ? 0 : INFINITY;
    if (!equal) row.reason = "not the same bits";
    report_(row);
  }

  void laws(std::int32_t version, std::int32_t dtype) {
    const Call call{.version = version, .dtype = dtype};
    const Answer once = run_on_device(rule_.info, p_, call);
    auto with = [&](auto change) {
      Call other = call;
      change(other);
      return run_on_device(rule_.info, p_, other).bits == once.bits;
    };
    same(call, "repeat", with([](Call&) {}));
    same(call, "what memory held before", with([](Call& c) { c.fill = 0x3a; }));
    same(call, "layout of the state", with([](Call& c) { c.layout = DELTAREF_STATE_KV; }));
    same(call, "strides", with([](Call& c) { c.padded = true; }));
    if (version == DELTAREF_V4)
      for (std::int32_t rows : {16, 32, 64}) same(call, "rows a block", with([&](Call& c) { c.rows = rows; }));
    if (version == DELTAREF_V5)
      for (std::int32_t overlap : {DELTAREF_BEFORE, DELTAREF_BESIDE})
        same(call, "overlap of the stages", with([&](Call& c) { c.overlap = overlap; }));
    prefix(call, once);
    alone(call, once);
  }

  /// What is appended changes no bit of what came before. \pre not packed
  void prefix(const Call& call, const Answer& whole) {
    const Shape& z = p_.shape;
    if (!z.offsets.empty() || z.B != 1) return;
    for (const Index T : {z.T / 3, z.T - 1, std::min<Index>(64, z.T)}) {
      if (T < 1) continue;
      Problem<double> shorter = p_;
      shorter.shape.T = T;
      for (Tensor<double>* x : {&shorter.q, &shorter.k, &shorter.v, &shorter.alpha, &shorter.beta, &shorter.lambda})
        if (!x->empty()) x->tokens = T, x->data.resize(static_cast<std::size_t>(T * x->heads * x->rows * x->cols));
      const Answer part = run_on_device(rule_.info, shorter, call);
      bool equal = true;
      for (std::size_t lane = 0; lane < part.result.size(); ++lane)
        equal = equal && part.result[lane].O == whole.result[lane].O.topRows(T);
      same(call, "prefix of " + std::to_string(T), equal);
    }
  }

  /// A packed sequence gives the bits it gives alone.
  void alone(const Call& call, const Answer& packed) {
    const Shape& z = p_.shape;
    if (z.offsets.empty()) return;
    for (Index n = 0; n < z.sequences(); ++n) {
      Problem<double> one = p_;
      one.shape.T = z.length(n), one.shape.offsets.clear();
      if (one.shape.T == 0) continue;
      for (Tensor<double>* x : {&one.q, &one.k, &one.v, &one.alpha, &one.beta, &one.lambda}) {
        if (x->empty()) continue;
        const auto size = static_cast<std::size_t>(x->heads * x->rows * x->cols);
        const auto from = x->data.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(z.begin(n)) * size);
        x->data =
            std::vector<double>(from, from + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(z.length(n)) * size));
        x->tokens = z.length(n);
      }
      if (!one.S0.empty()) one.S0 = {p_.S0.begin() + n * z.HV, p_.S0.begin() + (n + 1) * z.HV};
      const Answer a = run_on_device(rule_.info, one, call);
      bool equal = true;
      for (Index h = 0; h < z.HV; ++h) {
        const auto& in = packed.result[static_cast<std::size_t>(n * z.HV + h)];
        const auto& by_itself = a.result[static_cast<std::size_t>(h)];
        equal = equal && in.O == by_itself.O && in.S == by_itself.S;
      }
      same(call, "sequence " + std::to_string(n) + " alone", equal);
    }
  }

  /// v1: e~, e and S of every token, Lemma 3.1 and the tracking bound on the kernel's own numbers.
  void token_formulas(std::int32_t dtype) {
    const Call call{.version = DELTAREF_V1, .dtype = dtype, .trace = true};
    const Answer got = run_on_device(rule_.info, p_, call);
    const Shape& z = p_.shape;
    const double u = format_of(dtype == DELTAREF_FP64 ? DELTAREF_FP64 : DELTAREF_FP32).unit();
    if (!outside(DELTAREF_V1, dtype, 1).empty()) return;
    Quantities want, have;
    const std::map<std::string, double> expected = quantity_errors("tokens", 1);
    double lemma = 0, bound = 0;
    bool bounded = false;
    for (Index n = 0; n < z.sequences(); ++n)
      for (Index h = 0; h < z.HV; ++h) {
        const Stream<double> s = stream(rule_.info, rule_.over<double>(), r_, n, h);
        for (const auto& [name, x] : exact_tokens(n, h)) append(want[name], x);
        Mat<double> prior(z.length(n), z.d_v), posterior = prior, states(z.length(n) * z.d_v, z.d_k);
        for (Index t = 0; t < z.length(n); ++t) {
          const auto at = static_cast<std::size_t>((z.batch(n) * z.T + z.begin(n) + t) * z.HV + h);
          for (Index i = 0; i < z.d_v; ++i) {
            prior(t, i) = got.traces.at("e_prior")[at * static_cast<std::size_t>(z.d_v) + static_cast<std::size_t>(i)];
            posterior(t, i) =
                got.traces.at("e_posterior")[at * static_cast<std::size_t>(z.d_v) + static_cast<std::size_t>(i)];
            for (Index j = 0; j < z.d_k; ++j)
              states(t * z.d_v + i, j) =
                  got.traces.at("states")[(at * static_cast<std::size_t>(z.d_v) + static_cast<std::size_t>(i)) *
                                              static_cast<std::size_t>(z.d_k) +
                                          static_cast<std::size_t>(j)];
          }
        }
        append(have["e_prior"], prior), append(have["e_posterior"], posterior), append(have["states"], states);

        // F89: e_t = (1 - beta a) e~_t with a = y.x, on the kernel's own numbers. What rounding may leave of it is
        // relative to the size of what is subtracted.
        double rho = 0, drift = 0;
        for (Index t = 0; t < z.length(n); ++t) {
          const MicroStep<double>& m = s.steps[static_cast<std::size_t>(t)];
          const double factor = 1 - m.beta * m.y.dot(m.x);
          const Mat<double> S = states.middleRows(t * z.d_v, z.d_v);
          const double size = m.v.cwiseAbs().maxCoeff() + (S.cwiseAbs() * m.x.cwiseAbs()).maxCoeff() +
                              prior.row(t).cwiseAbs().maxCoeff() * (1 + m.beta * m.y.cwiseAbs().dot(m.x.cwiseAbs()));
          const double off = (posterior.row(t) - factor * prior.row(t)).cwiseAbs().maxCoeff();
          lemma = std::max(lemma, off == 0 ? 0 : off / (8 * u * size));
          // F92, F95: e~_t = e_{t-1} + r_t, r_t = v_t - v_{t-1} - S_{t-1}(x_t - x_{t-1}) + (1 - alpha) S_{t-1} x_t.
          if (t == 0) continue;
          const MicroStep<double>& before = s.steps[static_cast<std::size_t>(t - 1)];
          const Mat<double> S_before = states.middleRows((t - 1) * z.d_v, z.d_v);
          const Vec<double> r = m.v - before.v - S_before * (m.x - before.x) + S_before * (m.x - m.d * m.x);
          rho = std::max(rho, std::abs(factor)), drift = std::max(drift, r.norm());
        }
        if (rho < 1 && z.length(n) > 1) {
          bounded = true;
          double power = 1;
          const double e_0 = posterior.row(0).norm();
          for (Index t = 1; t < z.length(n); ++t) {
            power *= rho;
            const double radius = power * e_0 + rho * (1 - power) / (1 - rho) * drift;
            bound = std::max(bound, posterior.row(t).norm() / (radius * (1 + 1e4 * u) + 1e3 * u * drift));
          }
        }
      }
    for (const auto& [name, x] : want) {
      Row row = blank(call, name);
      row.kernel = "v1";
      const double e = expected.at(name) + kFloor;
      judge_quantity(row, apart(x, have[name]), e * u);
    }
    Row row = blank(call, "F89: e_t = (1 - beta a) e~_t");
    row.kernel = "v1", row.ratio = lemma, row.verdict = judge(lemma);
    report_(row);
    if (bounded) {
      row = blank(call, "F92: tracking bound");
      row.kernel = "v1", row.ratio = bound, row.verdict = bound <= 1 ? Verdict::passed : Verdict::failed;
      report_(row);
    }
  }

  /// v3 to v5: every matrix that the derivation of the chunk form names.
  void chunk_formulas(std::int32_t version, std::int32_t dtype) {
    const Call call{.version = version, .dtype = dtype, .trace = true};
    const Answer got = run_on_device(rule_.info, p_, call);
    const Shape& z = p_.shape;
    const bool per_channel = rule_.info.forget == Forget::per_channel;
    const double u = format_of(dtype == DELTAREF_FP64 ? DELTAREF_FP64 : DELTAREF_FP32).unit();
    if (!outside(version, dtype, got.plan.chunk).empty()) return;
    const bool tensor_cores = version >= DELTAREF_V4;
    const auto summed = quantity_errors(tensor_cores ? "solve" : "chunks", got.plan.chunk);
    const double kSums = tensor_cores ? kTensorCoreSums : 1, floor = tensor_cores ? kTensorCoreFloor : kFloor;
    std::map<std::string, double> error, allowed;
    for (Index n = 0; n < z.sequences(); ++n)
      for (Index h = 0; h < z.HV; ++h) {
        if (z.length(n) == 0) continue;
        const Quantities have = traced(got, z, n, h);
        const Quantities want = exact_chunks(version, got.plan.chunk, n, h);
        std::map<std::string, double> e;
        if (tensor_cores)
          for (const auto& [name, x] : version == DELTAREF_V4
                                           ? tensor_core_quantities(stream(rule_.info, rule_.over<double>(), r_, n, h),
                                                                    format_of(dtype), per_channel)
                                           : hopper_quantities(head(rule_.info, r_, n, h), format_of(dtype)))
            e[name] = apart(want.at(name), x);
        for (const auto& [name, x] : want) {
          if (!have.contains(name)) continue;  // v5 computes neither W nor U~
          error[name] = std::max(error[name], apart(x, have.at(name)));
          allowed[name] = std::max(allowed[name], e[name] + (kSums * summed.at(name) + floor) * u);
        }
      }
    for (const auto& [name, e] : error) {
      Row row = blank(call, name);
      row.kernel = "v" + std::to_string(version);
      judge_quantity(row, e, allowed[name]);
    }
  }

 private:
  Quantities exact_tokens(Index n, Index h) const {
    Quantities q;
    token_by_token(stream(rule_.info, rule_.over<DoubleDouble>(), over<DoubleDouble>(r_), n, h), &q);
    return q;
  }
  Quantities exact_chunks(std::int32_t version, Index C, Index n, Index h) const {
    const bool per_channel = rule_.info.forget == Forget::per_channel;
    const auto s = stream(rule_.info, rule_.over<DoubleDouble>(), over<DoubleDouble>(r_), n, h);
    return version == DELTAREF_V3 ? chunk_quantities(s, C) : solve_quantities(s, per_channel);
  }

  /// What rounding makes of each intermediate in that form, in units of the unit roundoff, over heads and draws.
  const std::map<std::string, double>& quantity_errors(const std::string& form, Index C) {
    auto& errors = quantity_errors_[form + std::to_string(C)];
    if (!errors.empty()) return errors;
    const Shape& z = r_.shape;
    const bool per_channel = rule_.info.forget == Forget::per_channel;
    auto quantities = [&]<Ring T>(const Stream<T>& s) {
      Quantities q;
      if (form == "tokens")
        token_by_token(s, &q);
      else
        q = form == "chunks" ? chunk_quantities(s, C) : solve_quantities(s, per_channel);
      return q;
    };
    for (Index n = 0; n < z.sequences(); ++n)
      for (Index h = 0; h < z.HV; ++h) {
        const Quantities exact = quantities(stream(rule_.info, rule_.over<double>(), r_, n, h));
        for (const Format& f : kDraws) {
          const Working::Scope scope(f);
          for (const auto& [name, x] :
               quantities(stream(rule_.info, rule_.over<AnyFormat>(), over<AnyFormat>(r_), n, h)))
            errors[name] = std::max(errors[name], apart(exact.at(name), x) / f.unit());
        }
      }
    return errors;
  }

  /// Why this case says nothing about that type: numbers that it cannot hold. Empty: it does.
  std::string outside(std::int32_t version, std::int32_t dtype, Index chunk) {
    if (family_.judge != Judge::conditioned && dtype != DELTAREF_FP16) return "";
    const double largest = dtype == DELTAREF_FP16 ? 65504 : dtype == DELTAREF_FP64 ? 1e300 : 3e38;
    for (const auto& lane : wanted_)
      if (lane.O.size() && as_double<DoubleDouble>(lane.O).cwiseAbs().maxCoeff() > largest)
        return "the output is outside its range";
    if (dtype == DELTAREF_FP64 || family_.judge != Judge::conditioned) return "";
    const Working::Scope scope(kFp32);
    const auto narrow = compute<AnyFormat>(rule_,
                                           version <= DELTAREF_V2   ? "recurrent"
                                           : version == DELTAREF_V3 ? "chunkwise"
                                                                    : "one_solve",
                                           chunk, over<AnyFormat>(r_));
    for (const auto& lane : narrow)
      if (!as_double<AnyFormat>(lane.O).allFinite() || !as_double<AnyFormat>(lane.S).allFinite())
        return "an intermediate is outside its range";
    return "";
  }

  void judge_quantity(Row& row, double error, double allowed) const {
    if (!(allowed < 0.1)) {
      row.verdict = Verdict::untrusted, row.ratio = NAN, row.reason = "ill-posed in this precision";
    } else {
      row.ratio = error == 0 ? 0 : error / allowed;
      row.verdict = judge(row.ratio);
    }
    report_(row);
  }

  Row blank(const Call& call, const std::string& what) const {
    return {.kernel = "",
            .rule = std::string(rule_.info.id),
            .family = std::string(family_.name),
            .shape = p_.shape.text(),
            .dtype = std::string(dtype_name(call.dtype)),
            .what = what,
            .reason = ""};
  }

  /// The errors that this version makes in this type: its form in rounded scalars, and the rounding of what it returns.
  Expected expected(std::int32_t version, std::int32_t dtype, Index chunk) {
    const double u = format_of(dtype == DELTAREF_FP64 ? DELTAREF_FP64 : DELTAREF_FP32).unit();
    if (version >= DELTAREF_V4) {
      const Format& f = format_of(dtype);
      const Result<double> twin = version == DELTAREF_V4
                                      ? run<double>(rule_.info, rule_.over<double>(), r_,
                                                    [&](const Stream<double>& s) { return tensor_cores(s, f); })
                                      : hopper(rule_.info, r_, SixteenBits{f});
      const Distance d = distance(wanted_, twin);
      const Expected& sums = errors("one_solve", 64);
      return {d.o + (kTensorCoreSums * sums.o + kTensorCoreFloor) * u,
              d.state + (kTensorCoreSums * sums.state + kTensorCoreFloor) * u};
    }
    if (dtype >= DELTAREF_FP32 && family_.judge == Judge::equality) return {0, 0};
    const Expected& sums = errors(version == DELTAREF_V1   ? "tokens"
                                  : version == DELTAREF_V2 ? "recurrent"
                                                           : "chunkwise",
                                  chunk);
    const double output = dtype <= DELTAREF_FP16 ? format_of(dtype).unit() : 0;
    return {(sums.o + kFloor) * u + output, (sums.state + kFloor) * u};
  }

  /// The errors of a form in rounded scalars, in units of the unit roundoff, the largest of the draws.
  const Expected& errors(const std::string& form, Index C) {
    const auto known = errors_.find(form);
    if (known != errors_.end()) return known->second;
    Expected worst;
    for (const Format& f : kDraws) {
      const Working::Scope scope(f);
      const Problem<AnyFormat> p = over<AnyFormat>(r_);
      const Result<AnyFormat> got = form == "tokens"
                                        ? run<AnyFormat>(rule_.info, rule_.over<AnyFormat>(), p,
                                                         [](const Stream<AnyFormat>& s) { return token_by_token(s); })
                                        : compute<AnyFormat>(rule_, form, C, p);
      const Distance d = distance(wanted_, got);
      worst.o = std::max(worst.o, d.o / f.unit()), worst.state = std::max(worst.state, d.state / f.unit());
    }
    return errors_.emplace(form, worst).first->second;
  }

  const Rule& rule_;
  const Family& family_;
  Size size_;
  const std::function<void(const Row&)>& report_;
  Problem<double> p_, r_;
  Result<DoubleDouble> wanted_;
  std::map<std::string, Expected> errors_;
  std::map<std::string, std::map<std::string, double>> quantity_errors_;  ///< in units of the unit roundoff

 public:
  const Problem<double>& problem() const { return p_; }
};

constexpr std::string_view kSizes[] = {
    // v1 to v3: any width; v4: 64 and 128.
    "B1_T0_H1_HV1_K64_V64_C64",
    "B2_T1_H1_HV1_K64_V128_C64",
    "B1_T37_H1_HV2_K20_V12_C64",
    "B1_T63_H1_HV1_K128_V64_C64",
    "B1_T130_H1_HV2_K64_V64_C64",
    "B1_T65_H2_HV6_K64_V64_C64",
    "B1_T137_H1_HV2_K64_V128_packed0.5.5.69.130_C64",
    "B1_T70_H1_HV1_K256_V40_C64",
    "B1_T192_H1_HV1_K128_V128_C64",
};

constexpr Index kTraced = 130 * 2 * 64 * 64;  ///< numbers of all states, up to which every intermediate is compared

bool chosen(const std::vector<std::string>& list, std::string_view name) {
  return list.empty() || std::ranges::find(list, name) != list.end();
}

}  // namespace

void check_kernels(const Selection& what, const std::function<void(const Row&)>& report) {
  std::mutex mutex;
  const std::function<void(const Row&)> one_at_a_time = [&](const Row& r) {
    const std::lock_guard lock(mutex);
    report(r);
  };
  struct Job {
    const Rule* rule;
    const Family* family;
    std::string_view size;
  };
  std::vector<Job> jobs;
  for (std::int32_t number = 0; number <= DELTAREF_KDA; ++number) {
    const Rule* const rule = find_rule(deltaref_gpu_rule_name(number));
    if (!rule || !chosen(what.rules, rule->info.id)) continue;
    for (const Family& f : families()) {
      if (!chosen(what.families, f.name) || !f.concerns(rule->info)) continue;
      if (what.quick && f.name != "alpha_zero") continue;
      for (const std::string_view size : kSizes) {
        // Every family at one size of v4 and one of odd widths; the baseline at all of them.
        const bool all = f.name == "gate_half" || f.name == "slack_nan";
        if (what.quick ? size != kSizes[2] && size != kSizes[6] : !all && size != kSizes[2] && size != kSizes[4])
          continue;
        jobs.push_back({rule, &f, size});
      }
    }
  }
  auto work = [&](const Job& job) {
    Size size = Size::parse(job.size);
    if (job.family->at && size.shape.offsets.empty()) {
      const Size at = job.family->at(size);
      if (at.shape.d_k != size.shape.d_k || at.C != size.C) return;  // the family's own size is not one of v4's
      size = at;
    }
    Case c(*job.rule, *job.family, size, what, one_at_a_time);
    const bool call_variants =
        !what.quick && job.family->name == "gate_half" && (job.size == kSizes[2] || job.size == kSizes[4]);
    const bool baseline = !what.quick && (job.family->name == "gate_half" || job.family->name == "alpha_zero");
    std::optional<Case> in_log, normalised;
    if (call_variants && job.rule->info.forget != Forget::no)
      in_log.emplace(*job.rule, *job.family, size, what, one_at_a_time, Case::log_gate);
    if (call_variants) normalised.emplace(*job.rule, *find_family("raw_keys"), size, what, one_at_a_time, Case::l2norm);
    const auto numbers = size.shape.T * size.shape.HV * size.shape.d_k * size.shape.d_v;
    for (std::int32_t version = DELTAREF_V1; version <= DELTAREF_V5; ++version) {
      if (!what.versions.empty() && std::ranges::find(what.versions, version) == what.versions.end()) continue;
      for (std::int32_t dtype = DELTAREF_BF16; dtype <= DELTAREF_FP64; ++dtype) {
        if (!c.takes(version, dtype) || !holds(c.problem(), format_of(dtype))) continue;
        c.outputs({.version = version, .dtype = dtype});
        const bool wide = dtype >= DELTAREF_FP32;
        if (version == DELTAREF_V1 && wide && numbers <= kTraced) c.token_formulas(dtype);
        if (version == DELTAREF_V3 && wide && numbers <= kTraced) c.chunk_formulas(version, dtype);
        if (version >= DELTAREF_V4 && numbers <= 4 * kTraced) c.chunk_formulas(version, dtype);
        if (in_log) in_log->outputs({.version = version, .dtype = dtype, .log_gate = true}, "o, state; log decay");
        if (normalised) normalised->outputs({.version = version, .dtype = dtype, .l2norm = true}, "o, state; l2norm");
        if (baseline && (version >= DELTAREF_V4 || dtype == DELTAREF_FP32)) c.laws(version, dtype);
      }
    }
  };
  // The long ones first, so that none is alone at the end.
  std::ranges::stable_sort(jobs, std::greater<>(), [](const Job& j) {
    const Shape z = Size::parse(j.size).shape;
    return z.B * z.T * z.HV * z.d_k * z.d_v;
  });
  const auto start = std::chrono::steady_clock::now();
  std::atomic<std::size_t> next = 0;
  std::exception_ptr error;
  {
    std::vector<std::jthread> pool;
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
      pool.emplace_back([&] {
        for (std::size_t i; (i = next++) < jobs.size();) try {
            if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > what.seconds) {
              one_at_a_time({.kernel = "all",
                             .rule = std::string(jobs[i].rule->info.id),
                             .family = std::string(jobs[i].family->name),
                             .shape = std::string(jobs[i].size),
                             .dtype = "all",
                             .what = "all",
                             .verdict = Verdict::skipped,
                             .reason = "no time was left"});
              continue;
            }
            work(jobs[i]);
          } catch (...) {
            const std::lock_guard lock(mutex);
            error = std::current_exception(), next = jobs.size();
          }
      });
  }
  if (error) std::rethrow_exception(error);
  if (what.quick || !what.families.empty() || !chosen(what.rules, "gated_delta")) return;
  for (std::int32_t version = DELTAREF_V1; version <= DELTAREF_V5; ++version) {
    if (!what.versions.empty() && std::ranges::find(what.versions, version) == what.versions.end()) continue;
    if (version == DELTAREF_V5 && !runs_v5()) continue;
    Row row{.kernel = "v" + std::to_string(version),
            .rule = "gated_delta",
            .family = "gate_half",
            .shape = "B16_T17477_H64_HV64_K128_V128",
            .dtype = "bf16",
            .what = "offsets beyond 2^31",
            .reason = ""};
    bool same = false;
    row.reason = far_offsets(version, same);
    row.verdict = !row.reason.empty() ? Verdict::skipped : same ? Verdict::passed : Verdict::failed;
    row.ratio = same ? 0 : INFINITY;
    report(row);
  }
}

}  // namespace delta::gpu
