// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string_view>

#include "micro_step.hpp"
#include "token.hpp"

namespace delta {

/// Which decay a rule takes: none, one number per head (`alpha`), or one per key channel (`alpha_k`).
enum class Forget { no, per_head, per_channel };
/// Which strength a rule takes: none, one number per head (`beta`), or one per value channel (`beta_v`).
enum class Strength { no, per_head, per_value };

/// What a rule says about itself; all that the command line, the dumps and the pages know of it.
struct RuleInfo {
  std::string_view id;       ///< its name everywhere
  std::string_view title;    ///< as people say it
  std::string_view formula;  ///< LaTeX of the recurrence, in the one convention
  std::string_view label;    ///< formula id
  std::string_view source;   ///< paper or repository, with any change of convention
  Forget forget = Forget::no;
  Strength strength = Strength::no;
  bool lambda = false;                 ///< takes lambda
  std::span<const Input> inputs = {};  ///< further tensors
  std::span<const std::string_view> aliases = {};
};

/// A rule is a function of one token: its micro-steps, and the same formula as its source prints it.
/// `paper_step` is written independently of `steps`; a test holds the two equal in exact arithmetic.
template <class R, class T>
concept RuleOver = Ring<T> && requires(Mat<T>& S, const Token<T>& t) {
  { R::info } -> std::convertible_to<const RuleInfo&>;
  { R::template steps<T>(t) } -> std::same_as<Steps<T>>;
  { R::template paper_step<T>(S, t) } -> std::same_as<Vec<T>>;
};

/// What reads the state after the token: o = S read(token). The query, unless the rule says otherwise.
template <class R, Ring T> Vec<T> read_of(const Token<T>& t) {
  if constexpr (requires { R::template read<T>(t); })
    return R::template read<T>(t);
  else
    return t.q;
}

/// The adjoint of `steps` and `read`: from the gradient with respect to the micro-steps and to the read vector [d_k],
/// the gradient with respect to the token. An adjoint has the shape of what it is the adjoint of, and so its type;
/// fields that the rule does not take are ignored.
template <Ring T> using Pullback = Token<T> (*)(const Token<T>& t, const Steps<T>& d_steps, const Vec<T>& d_read);

/// A rule's pullback, or nullptr for a rule that has none and therefore no gradients.
template <class R, Ring T> constexpr Pullback<T> pullback_of() {
  if constexpr (requires { Pullback<T>(&R::template pullback<T>); })
    return &R::template pullback<T>;
  else
    return nullptr;
}

}  // namespace delta
