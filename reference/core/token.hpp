// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "linalg.hpp"

namespace delta {

/// The width of one tensor row, per token and head.
enum class Extent { one, d_k, d_v };

/// What the entries of an input look like, so that generators can draw them.
enum class Like { gate, beta, key, value };

/// What stands in for an input that is not given; `key` is the token's own k.
enum class Neutral { zero, one, key };

/// A tensor that a rule takes beyond q, k, v, beta, the decay and lambda.
struct Input {
  std::string_view name;     ///< its name in dumps, in Python and in `Token`
  Extent extent;             ///< length of its last axis
  Like like;                 ///< a gate or strength in (0, 1), a key, or a value
  std::string_view meaning;  ///< one line
  bool more = false;         ///< true: one row for each micro-step after the first, [n_h - 1, extent]
  Neutral neutral = Neutral::zero;
};

/// One token of one head, as a rule sees it.
template <Ring T> struct Token {
  Vec<T> q;         ///< [d_k] query
  Vec<T> k;         ///< [d_k] key
  Vec<T> v;         ///< [d_v] value
  T beta = T(1);    ///< write strength
  Vec<T> beta_v;    ///< [d_v] write strength per value channel, for the rules that take one
  T alpha = T(1);   ///< decay of the whole state (the decay itself, never its logarithm)
  Vec<T> alpha_k;   ///< [d_k] decay per key channel, for the rules that take one
  T lambda = T(0);  ///< share of the query in the read key

  std::span<const Input> names;  ///< the further inputs, as the rule declares them
  std::vector<Mat<T>> values;    ///< their values, in the same order: [d x 1], or [n_h - 1 x d] where `more`

  /// A further input of the rule by its name. \throws std::out_of_range for a name that the rule does not declare
  const Mat<T>& operator[](std::string_view name) const {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i].name == name) return values.at(i);
    throw std::out_of_range("the rule declares no input named " + std::string(name));
  }
};

}  // namespace delta
