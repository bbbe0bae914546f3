// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checks/core/registry.hpp"
#include "checks/dump/dump.hpp"
#include "checks/mutants/input_fault.hpp"

namespace delta {

/// What the command line says about files that do not say it themselves; it wins over their metadata.
struct DumpOptions {
  std::string rule, scale, state_layout;  ///< empty: as in the file
};

/// Whether a tensor or a string of that name means something in the dump of some rule; nothing else is looked at.
bool has_meaning(std::string_view name);

/// One call of somebody's kernel: its inputs as problems, its outputs as results, one lane at a time (a lane is one
/// value head of one sequence), so that a large file never exists as doubles. The meaning of a dump's tensors is here
/// and nowhere else.
class Subject {
 public:
  /// Checks names, shapes, types and values of everything that will be read. \throws UsageError
  Subject(const Dump& dump, const DumpOptions& options);

  const Rule& rule() const { return *rule_; }
  const Shape& shape() const { return shape_; }
  double scale() const { return scale_; }
  Index lanes() const { return shape_.sequences() * shape_.HV; }
  bool has_final_state() const { return dump_.find("final_state") != nullptr; }

  /// eps, if q and k are to be normalised first.
  const std::optional<double>& l2norm() const { return l2norm_; }

  /// The coarsest type among q, k and v: what the products of the kernel can be expected to take.
  const Format& operands() const { return operands_; }
  const Format& format_of(const std::string& tensor) const;
  /// bf16 or fp16 where q, k and v hold nothing but such numbers in a wider type: what a kernel of that type leaves
  /// behind when its tensors were saved through a library that has no bf16.
  std::optional<Format> hidden_format() const;

  /// The inputs of one lane, over double or double-double: B = H = HV = 1, the scale left out.
  /// With a fault, as a kernel takes them that makes this mistake.
  template <Real T> Problem<T> lane(Index n, Index j, const InputFault& fault = {}) const;
  /// What the kernel returned there; the state is empty if the dump has none.
  Output<double> candidate(Index n, Index j) const;

  /// The gradients that can be judged: those that the file holds of inputs that the rule takes.
  const std::vector<std::string>& gradients() const { return gradients_; }
  /// Whether a gradient has key heads: value heads that share one add up there.
  static bool by_key_head(std::string_view tensor) { return tensor == "dq" || tensor == "dk"; }
  /// The gradients with respect to o and the final state that the kernel was given; the latter is 0 if it is not there.
  Output<double> output_gradient(Index n, Index j) const;
  /// From the gradient of a lane's problem to the tensors of `gradients()`, before anything adds up over heads: through
  /// the norm of q and k, to the logarithm of the decay, and summed where the file has one number for all channels.
  std::map<std::string, Mat<double>> gradient_tensors(const Problem<double>& gradient, Index n, Index j) const;
  /// What the kernel returned for one head, a token a row, or [d_v x d_k].
  Mat<double> candidate_gradient(const std::string& tensor, Index n, Index head) const;

  /// Whether a kernel that keeps both layouts apart would have stored this state as [d_k, d_v].
  bool stored_kv() const { return kv_; }
  /// Remarks that do not change the verdict: tensors that nobody judged.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Of those the ones to read first: a tensor that nobody looked at, with nearly the name of one that is not there.
  const std::vector<std::string>& hints() const { return hints_; }

 private:
  const DumpTensor& required(const std::string& name) const { return *dump_.find(name); }
  void require_everything(const std::string& rule, const std::string& scale, const std::string& layout) const;
  void expect_shape(const std::string& name, const DumpTensor& t, const std::vector<Index>& want,
                    const char* letters) const;
  void expect_state(const std::string& name, const DumpTensor& t) const;
  void read_layout(const std::string& layout);
  void read_offsets();
  void check_shapes();
  void check_gradients();
  void check_values() const;
  void remark_on_strangers();
  [[noreturn]] void fail(const std::string& message) const;
  template <Real T> Mat<T> state(const DumpTensor& t, Index n, Index j) const;
  Mat<double> rows_of(const DumpTensor& t, Index n, Index head) const;

  const Dump& dump_;
  const Rule* rule_ = nullptr;
  Shape shape_;
  double scale_ = 1;
  bool kv_ = true;
  std::optional<double> l2norm_;  ///< eps, if q and k are to be normalised first
  Format operands_ = kBf16;
  std::vector<std::string> gradients_, notes_, hints_;
};

/// Calls f(stream, channel) with each recurrence of a lane: one, or one per value channel (then d_v = 1).
template <Real T, class F> void each_stream(const Rule& rule, const Problem<T>& lane, F f) {
  each_stream<T>(rule.info, rule.over<T>(), lane, 0, 0, f);
}

}  // namespace delta
