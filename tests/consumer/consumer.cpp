// SPDX-License-Identifier: Apache-2.0
// An installed deltaref: two forms of one rule agree exactly, over the rationals.
#include <deltaref/forms/run.hpp>
#include <deltaref/rules/gated_delta.hpp>
#include <deltaref/scalars/rational.hpp>

int main() {
  using T = delta::Rational;
  const T half = T(1) / T(2), third = T(1) / T(3);
  delta::Stream<T> stream{.steps = {}, .Q = delta::Mat<T>(3, 2), .S0 = delta::Mat<T>::Zero(2, 2)};
  for (int t = 0; t < 3; ++t) {
    delta::Token<T> token;
    token.q = delta::Vec<T>::Constant(2, T(1)), token.k = delta::Vec<T>::Constant(2, T(t + 1));
    token.v = delta::Vec<T>::Constant(2, third), token.alpha = half, token.beta = third;
    for (const auto& step : delta::gated_delta::steps<T>(token)) stream.steps.push_back(step);
    stream.Q.row(t) = token.q.transpose();
  }
  const delta::Output<T> one = delta::recurrent<T>(stream), other = delta::chunkwise<T>(stream, 2);
  return one.O == other.O && one.S == other.S ? 0 : 1;
}
