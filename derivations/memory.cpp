// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Memory: a state against a cache
//
// Attention keeps the keys and values of every token, 2 B T H d numbers. A matrix state keeps B H
// d_k d_v numbers and never grows. For short sequences the cache is smaller.

void memory(Derivation<Rational>& d) {
  using T = Rational;

  // ## 1. Bytes
  //
  // B sequences, H heads, width d, s bytes a number. The lengths at which the two are equal solve
  // one linear equation.

  const auto state = [](T B, T H, T d_k, T d_v, T s) { return T(B * H * d_k * d_v * s); };
  const auto cache = [](T B, T L, T H, T width, T s) { return T(2 * B * L * H * width * s); };
  const auto crossing = [&](T H, T H_kv, T width, T s_state,
                            T s_cache) {  // T with cache(T) = state
    return T(state(1, H, width, width, s_state) / cache(1, 1, H_kv, width, s_cache));
  };
  d.recomputes("F67", "equal at T = d / 2: 64 tokens for d = 128", crossing(16, 16, 128, 2, 2),
               64);
  d.recomputes("F67", "a state in fp32 against a cache in bf16: T = d = 128",
               crossing(16, 16, 128, 4, 2), 128);
  d.recomputes("F67", "16 query heads over 2 key-value heads: T = 512",
               crossing(16, 2, 128, 2, 2), 512);
  d.recomputes("F67", "with a cache of 3 tokens for the convolution of q, k, v: T = 68.5",
               (state(1, 16, 128, 128, 2) + T(3) * 3 * 16 * 128 * 2) / cache(1, 1, 16, 128, 2),
               T(137) / 2);
  d.at_most("F67", "a plot that starts at T = 128 with d = 2048 / 16 does not show the crossing",
            crossing(16, 16, T(2048) / 16, 2, 2), 128);

  // ## 2. A hybrid of three state layers to one attention layer

  const auto hybrid = [&](T L) {
    return T(cache(1, L, 16, 128, 2) / 4 + 3 * state(1, 16, 128, 128, 2) / 4);
  };
  const auto saving = [&](T L) { return T(T(1) - hybrid(L) / cache(1, L, 16, 128, 2)); };
  d.recomputes("F69", "at T = d / 2 the hybrid saves nothing", saving(64), 0);
  d.recomputes("F69", "at T = 6400 = 100 times the crossing, 74.25 %", saving(6400),
               T(7425) / 10000);
  d.less("F69", "it stays below 75 % at every length", saving(1000000), T(3) / 4);
  d.less("F69", "and reaches it in the limit: at a million tokens within 1/20000",
         T(3) / 4 - saving(1000000), T(1) / 20000);

  // ## 3. What grows how
  //
  // Doubling the length doubles the cache, and four times the work of attention. A text that says
  // the cache grows quadratically means the work.

  d.recomputes("E4", "the cache is linear in T: twice the tokens, twice the bytes",
               cache(1, 2048, 16, 128, 2) / cache(1, 1024, 16, 128, 2), 2);
  d.recomputes("E4", "it is the scores that are quadratic: 2048^2 / 1024^2",
               T(2048) * 2048 / (T(1024) * 1024), 4);
  d.recomputes("F01",
               "the cache of softmax attention: 2 T H d numbers, 1 MiB in bf16 for T = 128, H = "
               "16, d = 128",
               cache(1, 128, 16, 128, 2), 1048576);
}

}  // namespace delta
