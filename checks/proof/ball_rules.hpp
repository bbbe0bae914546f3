// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "checks/core/registry.hpp"
#include "reference/scalars/ball.hpp"

namespace delta {

/// Every rule over balls, where Arb is: one file of their own, so that no rule waits for it.
template <> const RuleOps<Ball>& Rule::over<Ball>() const;

}  // namespace delta
