// SPDX-License-Identifier: Apache-2.0
#include "checks/gpu/quantities.hpp"

#include "gpu/schedule/hopper.hpp"
#include "gpu/schedule/tensor_cores.hpp"

namespace delta::gpu {

void append(Mat<double>& all, const Mat<double>& more) {
  Mat<double> joined(all.rows() + more.rows(), more.cols());
  if (all.size()) joined.topRows(all.rows()) = all;
  joined.bottomRows(more.rows()) = more;
  all = std::move(joined);
}

double apart(const Mat<double>& want, const Mat<double>& got) {
  if (want.size() == 0) return 0;
  if (!got.allFinite()) return INFINITY;
  const double size = want.cwiseAbs().maxCoeff(), difference = (got - want).cwiseAbs().maxCoeff();
  return difference == 0 ? 0 : difference / size;
}

Quantities scheduled(const Case& c, const deltaref_gpu_plan_t& plan, const Format& f, Index n, Index h) {
  Quantities q;
  if (plan.version == DELTAREF_V4)
    tensor_cores(c.stream<double>(n, h), f, [&](const TensorCoreChunk& x) {
      append_square(q, 64, x.L_g, x.inverse);
      append(q["W"], x.W), append(q["U"], x.U), append(q["Z"], x.Z), append(q["S"], x.S);
      if (!c.per_channel()) append(q["gamma"], x.gamma);
    });
  else
    hopper(c.head(n, h), solve_of(plan), SixteenBits{f}, plan.segments, {}, [&](const Walked<double>& x) {
      append_square(q, 64, x.prepared.L, x.prepared.A);
      append(q["Z"], x.E), append(q["S"], x.S), append(q["gamma"], x.prepared.gamma);
    });
  return q;
}

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

}  // namespace delta::gpu
