// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "checks/mutants/input_fault.hpp"
#include "reference/core/micro_step.hpp"

namespace delta {

/// Which part of a kernel is wrong: how it takes its inputs and hands out its outputs (scale, layout, heads, initial
/// state, gate space, norm), or what it computes between them.
enum class Part { update, interface };

/// A known mistake: one wrong line, apart from the reference. Each part that is set replaces the right one.
template <Ring T> struct Mutant {
  std::string_view id;
  std::string_view what;          ///< the wrong line, as a formula
  std::string_view variant = {};  ///< tells mutants of one id apart
  Part part = Part::update;
  InputFault input = {};                                   ///< what the kernel takes
  void (*stream)(Stream<T>&) = nullptr;                    ///< what it computes with
  Output<T> (*form)(const Stream<T>&, Index C) = nullptr;  ///< how it computes
  void (*output)(Output<T>&) = nullptr;                    ///< what it returns
  bool chunked = false;                                    ///< depends on a chunk length
  bool (*concerns)(const Stream<T>&) = nullptr;            ///< nullptr: every stream; of an empty one it says yes
  T (*scale)(const T&) = nullptr;                          ///< the read-out scale it uses, from the right one
  bool fitted = false;                                     ///< that scale is any constant, `scale` an example

  /// Its name as a form: the id, with the variant if there are several.
  std::string name() const { return std::string(id) + (variant.empty() ? "" : "/" + std::string(variant)); }
};

/// Every known mistake that exists over a scalar, those that are simplest to make first. One that needs an exponential
/// or a rounding exists over no exact scalar.
template <Ring T> std::span<const Mutant<T>> mutants();

/// The mutant of that name; nullptr if there is none.
template <Ring T> const Mutant<T>* find_mutant(std::string_view name) {
  for (const Mutant<T>& m : mutants<T>())
    if (m.name() == name) return &m;
  return nullptr;
}

}  // namespace delta
