// SPDX-License-Identifier: Apache-2.0
// What is asked of a kernel on one case. Each of these but the last runs it; all report rows.
#pragma once
#include "checks/gpu/model.hpp"

namespace delta::gpu {

/// The answer, judged by the error that this kind of code makes in this precision.
void judge_outputs(const Case& c, Model& model, const Call& call, const Report& report);

/// v6: the answer beside that of v5, which cuts nothing. With two segments the same bits, for the second starts from
/// the very state that the first leaves.
void judge_beside_v5(const Case& c, Model& model, const Call& call, const Report& report);

/// The laws that need no reference: answers that must be the same bits.
void judge_laws(const Case& c, const Call& call, const Report& report);

/// v1: e~, e and S of every token, Lemma 3.1 and the tracking bound on the kernel's own numbers.
void judge_tokens(const Case& c, Model& model, const Call& call, const Report& report);

/// v3 and newer: every matrix that the derivation of the chunk form names.
void judge_chunks(const Case& c, Model& model, const Call& call, const Report& report);

/// v5 and newer: how much closer the kernel is to its schedule than to the exact result.
/// \param got  the answer, with its traces: this judge runs nothing itself, and needs no device
void judge_agreement(const Case& c, Model& model, const Call& call, const Answer& got, const Report& report);

}  // namespace delta::gpu
