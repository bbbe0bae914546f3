// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "reference/core/linalg.hpp"

namespace delta {

/// Runs f(i) for i = 0 .. n - 1 on some threads; the first exception comes back.
template <class F> void parallel_for(Index n, int threads, F f) {
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

/// As many threads as there are cores, at least one.
inline int cores() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

}  // namespace delta
