// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <gtest/gtest.h>

#include "reference/core/micro_step.hpp"
#include "reference/core/random.hpp"

namespace delta {

/// What kind of decay the micro-steps of a random stream have.
enum class Decays { none, scalar, channel };

/// The kinds of stream that the rules make, and those that they could.
struct StreamShape {
  Index T = 1, d_k = 1, d_v = 1, m = 1;
  Decays decays = Decays::scalar;
  bool pre_decay = false;
  Index reset_every = 0;  ///< every so many micro-steps the decay is 0 (one channel of it, where it has channels)
};

/// A random stream. \param element  draws one number
template <Ring T, class Element> Stream<T> random_stream(const StreamShape& z, Element element) {
  auto vec = [&](Index n) {
    Vec<T> x(n);
    for (Index i = 0; i < n; ++i) x[i] = element();
    return x;
  };
  auto mat = [&](Index rows, Index cols) {
    Mat<T> A(rows, cols);
    for (Index i = 0; i < rows; ++i) A.row(i) = vec(cols).transpose();
    return A;
  };
  Stream<T> s{.steps = {}, .Q = mat(z.T, z.d_k), .S0 = mat(z.d_v, z.d_k), .m = z.m};
  for (Index i = 0; i < z.m * z.T; ++i) {
    MicroStep<T> step{.x = vec(z.d_k), .y = vec(z.d_k), .v = vec(z.d_v), .beta = element(), .pre_decay = z.pre_decay};
    if (z.decays == Decays::scalar) step.d = Decay<T>(element());
    if (z.decays == Decays::channel) step.d = Decay<T>(vec(z.d_k));
    if (z.reset_every && i % z.reset_every == z.reset_every - 1 && !step.d.none()) step.d.d[i % step.d.d.size()] = T(0);
    s.steps.push_back(std::move(step));
  }
  return s;
}

/// f on every number of a stream.
template <Ring U, Ring T, class F> Stream<U> map(const Stream<T>& s, F f) {
  auto all = [&](const auto& A) { return A.unaryExpr(f).template cast<U>().eval(); };
  Stream<U> out{.steps = {}, .Q = all(s.Q), .S0 = all(s.S0), .m = s.m};
  for (const MicroStep<T>& x : s.steps) {
    MicroStep<U> y{.x = all(x.x), .y = all(x.y), .v = all(x.v), .beta = f(x.beta), .pre_decay = x.pre_decay};
    y.d.d = all(x.d.d);
    out.steps.push_back(std::move(y));
  }
  return out;
}

template <Ring T> void expect_equal(const Output<T>& want, const Output<T>& got) {
  EXPECT_TRUE(want.O == got.O) << "outputs differ";
  EXPECT_TRUE(want.S == got.S) << "final states differ";
}

}  // namespace delta
