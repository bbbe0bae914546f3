// SPDX-License-Identifier: Apache-2.0
// A problem, what computed it, and what stands between, as a dump.
#pragma once
#include "checks/core/measure.hpp"
#include "checks/dump/dump.hpp"

namespace delta {

/// How the tensors of a problem are stored.
struct Storage {
  Dtype rows = Dtype::bf16;     ///< q, k, v and the rule's further inputs
  Dtype numbers = Dtype::fp32;  ///< beta, the decay, lambda and the initial state
  Dtype outputs = Dtype::fp64;  ///< o, and the states and gradients that are returned
  bool kv = true;               ///< states as [d_k, d_v]; else as [d_v, d_k]
  bool log_gate = false;        ///< `alpha` of the problem holds g = ln alpha
};

/// The inputs and the strings of a dump.
Dump dump_of(const Rule& rule, const Problem<double>& p, const Storage& how);

/// Adds o and final_state, or under other names the like: do and d_final_state.
void add_result(Dump& d, const Shape& z, const Result<double>& result, Dtype o, Dtype state, bool kv,
                const std::string& o_name = "o", const std::string& state_name = "final_state");

/// Adds dq, dk, dv, dbeta, dg, dlambda and d_initial_state, and gradient.NAME of each further input.
/// \param gradient  whose `alpha` holds dg = alpha dalpha
void add_gradient(Dump& d, const Rule& rule, const Problem<double>& gradient, const Storage& how);

/// Adds what a form showed, as FORM.NAME [N, HV, chunks, rows, columns], with an axis d_v before the chunks where every
/// value channel has a recurrence of its own. Chunks and rows that a sequence does not have are zero.
void add_intermediates(Dump& d, const Shape& z, std::string_view form, const Intermediates& shown);

/// Writes a .safetensors file and returns its bytes. \throws UsageError
std::vector<std::byte> save(const Dump& d, const std::string& path);

}  // namespace delta
