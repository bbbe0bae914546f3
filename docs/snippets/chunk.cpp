// SPDX-License-Identifier: Apache-2.0
#include <deltaref/forms/run.hpp>
#include <deltaref/rules/q_delta.hpp>
#include <deltaref/scalars/rational.hpp>
#include <iostream>

int main() {
  using namespace delta;
  using T = Rational;  // double, Dual<double>, DoubleDouble, GF61, ...: any scalar with + - *

  Stream<T> tokens{.steps = {}, .Q = Mat<T>(2, 2), .S0 = Mat<T>::Zero(2, 2)};
  for (int t = 0; t < 2; ++t) {
    Token<T> x{.q = Vec<T>{{T(1), T(t)}}, .k = Vec<T>{{T(1), T(1)}}, .v = Vec<T>{{T(3), T(4)}}};
    x.alpha = T(1) / T(2), x.beta = T(1) / T(3), x.lambda = T(1) / T(5);
    for (const MicroStep<T>& step : q_delta::steps(x)) tokens.steps.push_back(step);
    tokens.Q.row(t) = x.q.transpose();
  }

  const Output<T> by_token = recurrent(tokens);
  const Output<T> by_chunk = chunkwise<T>(tokens, 2, [](const Chunk<T>& c) { std::cout << "Z =\n" << c.Z << '\n'; });
  std::cout << "S =\n" << by_chunk.S << "\nequal: " << std::boolalpha << (by_token.S == by_chunk.S) << '\n';
}
