// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>
#include <vector>

namespace delta {

/// What a layer of a model mixes its tokens with: the id of a rule, or one of the two kinds of softmax attention.
using LayerKind = std::string_view;
inline constexpr LayerKind kAttention = "attention";    ///< every earlier token; a cache that grows
inline constexpr LayerKind kWindow = "sliding_window";  ///< the last 2048 tokens, say; a cache of fixed size

/// The kinds repeated until there are n layers.
inline std::vector<LayerKind> repeat(const std::vector<LayerKind>& pattern, std::size_t n) {
  std::vector<LayerKind> layers(n);
  for (std::size_t i = 0; i < n; ++i) layers[i] = pattern[i % pattern.size()];
  return layers;
}

/// Gated DeltaNet-H1: the rule and a sliding window in turn.
/// \formula{F101}
inline std::vector<LayerKind> hybrid_h1(std::size_t n) { return repeat({"gated_delta", kWindow}, n); }

/// Gated DeltaNet-H2: Mamba-2, the rule, a sliding window.
/// \formula{F101}
inline std::vector<LayerKind> hybrid_h2(std::size_t n) { return repeat({"mamba2", "gated_delta", kWindow}, n); }

/// DeltaNet with a sliding window in every other layer.
/// \formula{F101}
inline std::vector<LayerKind> hybrid_window(std::size_t n) { return repeat({"delta", kWindow}, n); }

/// DeltaNet with full attention in two layers only, the second and the one after the middle (2 and n/2 + 1, from 1).
/// \formula{F101}
inline std::vector<LayerKind> hybrid_global(std::size_t n) {
  std::vector<LayerKind> layers(n, "delta");
  if (n >= 2) layers[1] = layers[n / 2] = kAttention;
  return layers;
}

/// Three layers of a rule to one of full attention, so that a long text costs a quarter of the cache.
/// \formula{F69}
inline std::vector<LayerKind> hybrid_three_to_one(LayerKind rule, std::size_t n) {
  return repeat({rule, rule, rule, kAttention}, n);
}

}  // namespace delta
