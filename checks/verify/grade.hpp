// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "checks/verify/lanes.hpp"

namespace delta {

/// Names the class of implementation that the error looks like, and the intermediate that dominates it.
///
/// The rule. Models of kernels (chunk length, one solve or two, type of the operands, of the inverse, of the state and
/// of beta) are run on the inputs. Of each, u is the share of the kernel's square error that the model does not make,
/// \f[ u = \frac{|o - o_{model}|^2}{|o - o^*|^2}, \f]
/// the mean of o and the state; what fp32 sums make on their own is left out. Independent errors of one size give 2.
/// If the least u is below 1/2, and below 3/4 in each output, the kernel is recognised. Classes whose best u is within
/// 10 % (and 0.01) of the least cannot be told apart: the coarsest of them is named. If no model is recognised, the
/// coarsest class whose error has the same size, to a factor of 1.3 in each output, is named, or else the one that
/// comes nearest; and "worse" where the verdict is failed. state-bf16 is a fault, and named only where nothing else
/// fits; a fp32 final state that holds more than bf16 numbers rules it out.
void grade(const Subject& subject, const Evidence& evidence, int threads, FileVerdict& v);

}  // namespace delta
