// SPDX-License-Identifier: Apache-2.0
// The rule of CONTRIBUTING.md, as its page quotes it: its micro-steps are its printed formula.
#include "read_once.hpp"

#include <deltaref/forms/run.hpp>
#include <deltaref/scalars/rational.hpp>
#include <iostream>

int main() {
  using namespace delta;
  using T = Rational;
  Token<T> x{.q = Vec<T>{{T(1), T(2)}}, .k = Vec<T>{{T(3), T(-1)}}, .v = Vec<T>{{T(3), T(4), T(5)}}};
  x.beta = T(1) / T(3);
  x.names = read_once::inputs, x.values = {Mat<T>::Constant(1, 1, T(1) / T(5))};  // rho
  Mat<T> by_steps = Mat<T>::Ones(3, 2), by_paper = by_steps;
  for (const MicroStep<T>& step : read_once::steps(x)) apply(by_steps, step);
  const Vec<T> o = read_once::paper_step(by_paper, x);
  std::cout << std::boolalpha << (by_steps == by_paper && Vec<T>(by_steps * x.q) == o) << '\n';
}
