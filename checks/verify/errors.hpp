// SPDX-License-Identifier: Apache-2.0
// The errors that verdicts are made of, and the threads that lanes are spread over.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <thread>
#include <vector>

#include "reference/core/micro_step.hpp"

namespace delta {

/// Errors of an output against the exact one: o by its worst row, the state as a whole.
struct Errors {
  double o = 0, state = 0;
};

/// |x| / size, where 0/0 is 0 and whatever is not finite is infinite.
inline double relative(double x, double size) {
  if (!std::isfinite(x) || !std::isfinite(size)) return INFINITY;
  return x == 0 ? 0 : x / size;
}

inline double largest_row(const Mat<double>& A) { return A.size() == 0 ? 0 : A.rowwise().stableNorm().maxCoeff(); }

/// max_t |o_t - o*_t| / max_t |o*_t|
inline double row_error(const Mat<double>& want, const Mat<double>& got) {
  const Mat<double> E = got - want;
  return relative(E.allFinite() ? largest_row(E) : INFINITY, largest_row(want));
}

/// |S - S*|_F / |S*|_F
inline double whole_error(const Mat<double>& want, const Mat<double>& got) {
  const Mat<double> E = got - want;
  return relative(E.allFinite() ? E.stableNorm() : INFINITY, want.stableNorm());
}

inline Errors errors(const Output<double>& want, const Output<double>& got) {
  return {row_error(want.O, got.O), got.S.size() == 0 ? 0 : whole_error(want.S, got.S)};
}

inline void raise(Errors& to, const Errors& e) { to.o = std::max(to.o, e.o), to.state = std::max(to.state, e.state); }

inline double ratio_of(double error, double expected) { return error == 0 ? 0 : error / expected; }

/// Runs f(i) for i = 0 .. n - 1 on some threads; the first exception comes back.
template <class F> void parallel(Index n, int threads, F f) {
  std::atomic<Index> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  auto work = [&] {
    try {
      for (Index i = next++; i < n && !failed; i = next++) f(i);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < std::min<Index>(threads, n); ++i) pool.emplace_back(work);
  work();
  for (std::thread& t : pool) t.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace delta
