// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>
#include <cstdint>

namespace delta {

/// A seeded generator of our own: the same numbers on every machine, compiler and instruction set
/// (the distributions of `<random>` are not). splitmix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// uniform on [0, 1), a multiple of 2^-53
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// uniform on 0 .. n - 1
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n)); }
  /// nearly normal, mean 0 and variance 1: the sum of twelve uniforms, which no library function can change
  double normal() {
    double s = -6;
    for (int i = 0; i < 12; ++i) s += uniform();
    return s;
  }
  double sign() { return bits() & 1 ? 1 : -1; }

 private:
  std::uint64_t state_;
};

}  // namespace delta
