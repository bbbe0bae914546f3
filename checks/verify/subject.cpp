// SPDX-License-Identifier: Apache-2.0
#include "checks/verify/subject.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "checks/proof/have_arb.hpp"
#if DELTAREF_HAVE_ARB
#include "reference/scalars/ball.hpp"
#endif

namespace delta {
namespace {

/// The tensors that every dump may have; a rule's further inputs come from its declaration.
const std::set<std::string> kInputs{"q", "k", "v", "beta", "g", "alpha", "lambda", "initial_state", "cu_seqlens"};
const std::set<std::string> kOutputs{"o", "final_state"};
const std::set<std::string> kGivenGradients{"do", "d_final_state"};
/// In the order of reports.
const std::vector<std::string> kGradients{"dq", "dk", "dv", "dbeta", "dg", "dlambda", "d_initial_state"};
const std::set<std::string> kMetadata{"rule", "scale", "state_layout", "qk_l2norm", "producer", "note"};

bool takes(const RuleInfo& rule, std::string_view input) {
  return std::ranges::find(rule.inputs, input, &Input::name) != rule.inputs.end();
}

/// The names that every dump may have.
std::vector<std::string> tensor_names() {
  std::vector<std::string> all = kGradients;
  for (const auto* more : {&kInputs, &kOutputs, &kGivenGradients}) all.insert(all.end(), more->begin(), more->end());
  return all;
}

std::string lower(std::string s) {
  for (char& c : s) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return s;
}

/// How many letters to insert, drop or change, from one word to the other.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // from the part of `a` so far to each part of `b`
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t change = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

/// The name that was probably meant: the nearest one, if it differs in a third of its letters at most; else empty.
std::string meant(const std::string& name, const std::vector<std::string>& known) {
  if (known.empty() || name.size() > 40) return {};
  const auto distance = [&](const std::string& k) { return edits(lower(name), k); };
  const std::string& nearest = *std::ranges::min_element(known, {}, distance);
  return 3 * distance(nearest) <= nearest.size() ? nearest : "";
}

/// A lane's state and inputs are held as doubles, several times over: more is no head of a kernel, and a few bytes of
/// file must not ask for all the memory there is.
constexpr Index kMostChannels = 2048, kMostLanes = 1 << 20;

double number(const std::string& s, const std::string& what) {
  char* end = nullptr;
  const double x = std::strtod(s.c_str(), &end);
  if (s.empty() || *end != '\0' || !std::isfinite(x))
    throw UsageError(what + ": expected a number, got '" + s.substr(0, 40) + "'; try 0.125");
  return x;
}

/// exp(g), in double-double good to the 64 bits of a long double where there is one.
template <Real T> T decay_of(double g) {
  if constexpr (std::is_same_v<T, DoubleDouble>) {
    const long double e = std::exp(static_cast<long double>(g));
    const auto hi = static_cast<double>(e);
    return {hi, static_cast<double>(e - hi)};
  } else {
    using std::exp;
    return exp(T(g));
  }
}

std::string number_text(double x) {
  char s[32];
  std::snprintf(s, sizeof s, "%.6g", x);
  return s;
}

const Format& format(Dtype d) {
  switch (d) {
    case Dtype::bf16:
      return kBf16;
    case Dtype::fp16:
      return kFp16;
    case Dtype::fp32:
      return kFp32;
    default:
      return kFp64;
  }
}

}  // namespace

bool has_meaning(std::string_view view) {
  static const std::vector<std::string> tensors = tensor_names();
  const std::string name(view);
  return kMetadata.contains(name) || std::ranges::find(tensors, name) != tensors.end() ||
         std::ranges::any_of(rules(), [&](const Rule* r) { return takes(r->info, name); });
}

void Subject::fail(const std::string& message) const { throw UsageError(dump_.file + ": " + message); }

Subject::Subject(const Dump& dump, const DumpOptions& options) : dump_(dump) {
  const auto meta = [&](const char* key, const std::string& option = "") {
    const auto it = dump_.metadata.find(key);
    return !option.empty() || it == dump_.metadata.end() ? option : it->second;
  };
  const std::string rule = meta("rule", options.rule), scale = meta("scale", options.scale),
                    layout = meta("state_layout", options.state_layout);
  require_everything(rule, scale, layout);
  rule_ = find_rule(rule);
  if (!rule_) {
    std::string known;
    for (const Rule* r : rules()) known += (known.empty() ? "" : ", ") + std::string(r->info.id);
    fail("unknown rule '" + rule.substr(0, 40) + "'; expected one of " + known);
  }
  scale_ = number(scale, options.scale.empty() ? dump_.file + ": metadata 'scale'" : "--scale");
  if (const std::string eps = meta("qk_l2norm"); !eps.empty()) {
    l2norm_ = number(eps, dump_.file + ": metadata 'qk_l2norm' (the eps of the norm)");
    if (*l2norm_ < 0) fail("metadata 'qk_l2norm' is the eps of the norm; expected 0 or more, got " + eps);
  }
  check_shapes();
  read_layout(layout);
  read_offsets();
  check_gradients();
  check_values();

  operands_ = format(dump_.find("q")->dtype);
  for (const char* t : {"k", "v"})
    if (const Format& f = format(dump_.find(t)->dtype); f.p < operands_.p) operands_ = f;
  remark_on_strangers();
}

/// All that is missing at once, so that nobody learns of it one call after the other.
void Subject::require_everything(const std::string& rule, const std::string& scale, const std::string& layout) const {
  std::string missing;
  const auto require = [&](bool there, const std::string& what) {
    if (!there) missing += (missing.empty() ? "" : ", ") + what;
  };
  for (const char* tensor : {"q", "k", "v", "o"})
    require(dump_.find(tensor), "the tensor '" + std::string(tensor) + "'");
  if (!missing.empty()) {
    std::string have;
    for (const std::string& name : dump_.names()) have += (have.empty() ? "" : ", ") + name;
    missing += " (the file holds " + (have.empty() ? "nothing" : have.substr(0, 200)) + ")";
  }
  require(!rule.empty(), "the rule (pass --rule, for example --rule gated_delta)");
  require(!scale.empty(), "the scale (pass --scale, the factor of q in the read-out: often d_k^-1/2, or 1)");
  const DumpTensor *q = dump_.find("q"), *v = dump_.find("v");
  const bool square = q && v && !q->shape.empty() && !v->shape.empty() && q->shape.back() == v->shape.back();
  const bool has_state = dump_.find("initial_state") || dump_.find("final_state");
  require(!layout.empty() || !has_state || !square,
          "how states are stored, as d_k = d_v (pass --state-layout kv for [d_k,d_v], vk for [d_v,d_k])");
  if (!missing.empty()) fail("lacks " + missing);
}

/// What is in the file and was not looked at.
void Subject::remark_on_strangers() {
  std::vector<std::string> known = tensor_names(), absent;
  for (const Input& i : rule_->info.inputs) known.emplace_back(i.name);
  std::ranges::copy_if(known, std::back_inserter(absent), [&](const auto& name) { return !dump_.find(name); });
  for (const std::string& name : dump_.names()) {
    const bool intermediate = name.find('.') != std::string::npos;  // FORM.NAME came with the inputs
    if (intermediate || std::ranges::find(known, name) != known.end()) continue;
    if (const std::string other = meant(name, absent); !other.empty())
      hints_.push_back("tensor '" + name + "' was not looked at; is it '" + other + "'? Then name it so");
    else
      notes_.push_back("tensor '" + name + "' is nothing that a dump of " + std::string(rule_->info.id) +
                       " holds; it was not looked at");
  }
}

const Format& Subject::format_of(const std::string& tensor) const { return format(required(tensor).dtype); }

void Subject::expect_shape(const std::string& name, const DumpTensor& t, const std::vector<Index>& want,
                           const char* letters) const {
  if (is_integer(t.dtype)) fail("tensor '" + name + "' holds integers; expected bf16, fp16, fp32 or fp64");
  if (!std::ranges::equal(t.shape, want))
    fail("tensor '" + name + "' has shape " + text(t.shape) + "; expected " + letters + " = " +
         text(std::vector<std::int64_t>(want.begin(), want.end())));
}

void Subject::check_shapes() {
  const DumpTensor &q = required("q"), &k = required("k"), &v = required("v"), &o = required("o");
  for (const auto& [name, t] : {std::pair<const char*, const DumpTensor&>{"q", q}, {"v", v}})
    if (t.shape.size() != 4)
      fail(std::string("tensor '") + name + "' has shape " + text(t.shape) + "; expected four axes, " +
           (*name == 'q' ? "[B,T,H,d_k]" : "[B,T,HV,d_v]"));
  Shape& z = shape_;
  z.B = q.shape[0], z.T = q.shape[1], z.H = q.shape[2], z.d_k = q.shape[3], z.HV = v.shape[2], z.d_v = v.shape[3];
  expect_shape("q", q, {z.B, z.T, z.H, z.d_k}, "[B,T,H,d_k]");
  expect_shape("k", k, {z.B, z.T, z.H, z.d_k}, "[B,T,H,d_k]");
  expect_shape("v", v, {z.B, z.T, z.HV, z.d_v}, "[B,T,HV,d_v]");
  expect_shape("o", o, {z.B, z.T, z.HV, z.d_v}, "[B,T,HV,d_v]");
  if (z.H < 1 || z.HV < 1 || z.d_k < 1 || z.d_v < 1)
    fail("q is " + text(q.shape) + " and v is " + text(v.shape) + "; expected at least one head and one channel");
  if (std::max(z.d_k, z.d_v) > kMostChannels)
    fail("q is " + text(q.shape) + " and v is " + text(v.shape) + "; expected heads of at most " +
         std::to_string(kMostChannels) + " channels");
  if (std::max(z.B, z.HV) > kMostLanes || z.B * z.HV > kMostLanes)
    fail("v is " + text(v.shape) + "; expected at most " + std::to_string(kMostLanes) +
         " heads in all: store fewer sequences");
  if (z.HV % z.H != 0)
    fail("v has " + std::to_string(z.HV) + " heads and k has " + std::to_string(z.H) +
         "; expected HV to be a multiple of H (value head j uses key head j / (HV/H))");

  // [B,T,HV], or with a last axis of channels
  const auto per_token = [&](const char* name, Index channels, const char* letters) {
    const DumpTensor* t = dump_.find(name);
    if (!t) return;
    if (channels > 0 && t->shape.size() == 4)
      expect_shape(name, *t, {z.B, z.T, z.HV, channels}, letters);
    else
      expect_shape(name, *t, {z.B, z.T, z.HV}, "[B,T,HV]");
  };
  per_token("beta", z.d_v, "[B,T,HV,d_v]");
  per_token("g", z.d_k, "[B,T,HV,d_k]");
  per_token("alpha", z.d_k, "[B,T,HV,d_k]");
  per_token("lambda", 0, "");
  if (dump_.find("g") && dump_.find("alpha"))
    fail("has both 'g' (the logarithm of the decay) and 'alpha' (the decay); expected one of them");

  for (const Input& i : rule_->info.inputs) {
    const std::string name(i.name);
    const DumpTensor* given = dump_.find(name);
    if (!given) continue;  // its neutral value stands in
    const DumpTensor& t = *given;
    std::vector<Index> want{z.B, z.T, z.HV};
    std::string letters = "[B,T,HV";
    if (i.more) {
      if (t.shape.size() < 4 || t.shape[3] > kMostChannels)
        fail("tensor '" + name + "' has shape " + text(t.shape) + "; expected [B,T,HV,n_h-1,..], n_h at most " +
             std::to_string(kMostChannels));
      if (z.n_h == 1) z.n_h = t.shape[3] + 1;
      want.push_back(z.n_h - 1), letters += ",n_h-1";
    }
    if (i.extent != Extent::one)
      want.push_back(z.width(i.extent)), letters += i.extent == Extent::d_k ? ",d_k" : ",d_v";
    expect_shape(name, t, want, (letters + "]").c_str());
  }
}

void Subject::read_layout(const std::string& layout) {
  if (!layout.empty() && layout != "kv" && layout != "vk")
    fail("state_layout is '" + layout.substr(0, 40) + "'; expected kv (stored [d_k,d_v]) or vk ([d_v,d_k])");
  const DumpTensor* s = dump_.find("final_state") ? dump_.find("final_state") : dump_.find("initial_state");
  kv_ = !layout.empty() ? layout == "kv" : !s || (s->shape.size() == 4 && s->shape[2] == shape_.d_k);
}

void Subject::read_offsets() {
  if (const DumpTensor* cu = dump_.find("cu_seqlens")) {
    if (!is_integer(cu->dtype)) fail("cu_seqlens is " + std::string(name(cu->dtype)) + "; expected int32 or int64");
    if (cu->shape.size() != 1 || cu->shape[0] < 1)
      fail("cu_seqlens has shape " + text(cu->shape) + "; expected [N+1], the offsets of N sequences");
    if (shape_.B != 1) fail("has cu_seqlens and B = " + std::to_string(shape_.B) + "; packed sequences need B = 1");
    for (Index i = 0; i < cu->shape[0]; ++i) {
      const std::int64_t at = cu->integer(i), before = i == 0 ? 0 : cu->integer(i - 1);
      const std::string place = "cu_seqlens[" + std::to_string(i) + "] is " + std::to_string(at);
      if (i == 0 && at != 0) fail(place + "; expected the first offset to be 0");
      if (at < before) fail(place + " after " + std::to_string(before) + "; expected offsets that do not decrease");
      if (at > shape_.T) fail(place + "; expected at most T = " + std::to_string(shape_.T));
      shape_.offsets.push_back(at);
    }
    if (shape_.sequences() > kMostLanes / shape_.HV)
      fail("cu_seqlens has " + std::to_string(shape_.sequences()) + " sequences of " + std::to_string(shape_.HV) +
           " heads; expected at most " + std::to_string(kMostLanes) + " heads in all: store fewer sequences");
  }
  for (const char* name : {"initial_state", "final_state"})
    if (const DumpTensor* s = dump_.find(name)) expect_state(name, *s);
}

void Subject::expect_state(const std::string& name, const DumpTensor& t) const {
  const Shape& z = shape_;
  const std::vector<Index> kv{z.sequences(), z.HV, z.d_k, z.d_v}, vk{z.sequences(), z.HV, z.d_v, z.d_k};
  const char* letters = kv_ ? "[N,HV,d_k,d_v] (state_layout kv)" : "[N,HV,d_v,d_k] (state_layout vk)";
  if (z.d_k != z.d_v && std::ranges::equal(t.shape, kv_ ? vk : kv))
    fail("tensor '" + name + "' is stored " + (kv_ ? "[d_v,d_k]" : "[d_k,d_v]") + "; expected " + letters +
         ", or pass --state-layout " + (kv_ ? "vk" : "kv"));
  expect_shape(name, t, kv_ ? kv : vk, letters);
}

void Subject::check_gradients() {
  const Shape& z = shape_;
  const RuleInfo& info = rule_->info;
  const auto numbers = [&](const std::string& name, const DumpTensor& t, const char* input, Index channels,
                           const char* letters) {
    const DumpTensor* of = dump_.find(input);
    const bool wide = of ? of->shape.size() == 4 : t.shape.size() == 4;
    if (wide && channels > 0)
      expect_shape(name, t, {z.B, z.T, z.HV, channels}, letters);
    else
      expect_shape(name, t, {z.B, z.T, z.HV}, "[B,T,HV]");
  };
  if (const DumpTensor* t = dump_.find("do")) expect_shape("do", *t, {z.B, z.T, z.HV, z.d_v}, "[B,T,HV,d_v]");
  if (const DumpTensor* t = dump_.find("d_final_state")) expect_state("d_final_state", *t);
  for (const std::string& name : kGradients) {
    const DumpTensor* t = dump_.find(name);
    if (!t) continue;
    const bool taken = name == "dbeta"     ? info.strength != Strength::no
                       : name == "dg"      ? info.forget != Forget::no
                       : name == "dlambda" ? info.lambda
                                           : true;
    if (!taken || !rule_->has_gradient()) {
      notes_.push_back("'" + name + "' was not judged: " + std::string(info.id) +
                       (taken ? " has no gradients here" : " takes no " + name.substr(1)));
      continue;
    }
    if (!dump_.find("do"))
      fail("has '" + name + "' but no 'do', the gradient with respect to o that the backward pass was given");
    if (by_key_head(name)) expect_shape(name, *t, {z.B, z.T, z.H, z.d_k}, "[B,T,H,d_k]");
    if (name == "dv") expect_shape(name, *t, {z.B, z.T, z.HV, z.d_v}, "[B,T,HV,d_v]");
    if (name == "dbeta") numbers(name, *t, "beta", info.strength == Strength::per_value ? z.d_v : 0, "[B,T,HV,d_v]");
    if (name == "dg")
      numbers(name, *t, dump_.find("g") ? "g" : "alpha", info.forget == Forget::per_channel ? z.d_k : 0,
              "[B,T,HV,d_k]");
    if (name == "dlambda") numbers(name, *t, "lambda", 0, "");
    if (name == "d_initial_state") expect_state(name, *t);
    gradients_.push_back(name);
  }
}

void Subject::check_values() const {
  const RuleInfo& info = rule_->info;
  const std::string id(info.id);
  const Index judged = shape_.offsets.empty() ? shape_.T : shape_.offsets.back();  // the rest of a packed row is slack

  // Every element of the judged rows of [B, T, heads, ...] must satisfy `good`.
  const auto all = [&](const std::string& name, auto good, const std::string& expected) {
    const DumpTensor* t = dump_.find(name);
    if (!t || t->size() == 0) return;
    const Index heads = t->shape[2], row = elements(std::span(t->shape).subspan(2));
    std::vector<double> x(static_cast<std::size_t>(row));
    for (Index b = 0; b < shape_.B; ++b)
      for (Index s = 0; s < judged; ++s) {
        t->read((b * shape_.T + s) * row, x);
        for (Index i = 0; i < row; ++i)
          if (!good(x[i]))
            fail("tensor '" + name + "' at b " + std::to_string(b) + ", t " + std::to_string(s) + ", head " +
                 std::to_string(i / (row / heads)) +
                 (row == heads ? "" : ", channel " + std::to_string(i % (row / heads))) + " is " + number_text(x[i]) +
                 "; " + expected);
      }
  };
  // A value per channel where the rule takes one per head must be the same for all channels.
  const auto same_in_a_row = [&](const std::string& name, const char* per) {
    const DumpTensor* t = dump_.find(name);
    if (!t || t->shape.size() < 4) return;
    const Index row = t->shape[3];
    std::vector<double> x(static_cast<std::size_t>(row));
    for (Index i = 0; i < t->size() / row; ++i) {
      t->read(i * row, x);
      if (i / shape_.HV % shape_.T < judged && std::ranges::any_of(x, [&](double y) { return y != x[0]; }))
        fail("tensor '" + name + "' differs between channels; " + id + " takes one " + per +
             " per head, expected [B,T,HV]: pass --rule with a rule that takes one per channel");
    }
  };
  const auto finite = [](double x) { return std::isfinite(x); };
  for (const char* name : {"q", "k", "v", "beta", "lambda", "do"}) all(name, finite, "expected finite inputs");
  for (const Input& i : info.inputs) all(std::string(i.name), finite, "expected finite inputs");
  all(
      "g", [](double x) { return x <= 0; },
      "expected the natural logarithm of a decay, at most 0 (-inf is a reset); name the tensor 'alpha' if it is the "
      "decay itself");
  all(
      "alpha", [](double x) { return x >= 0 && x <= 1; },
      "expected a decay between 0 and 1; name the tensor 'g' if it is the natural logarithm");
  for (const char* name : {"initial_state", "d_final_state"})
    if (const DumpTensor* s = dump_.find(name))
      for (Index i = 0; i < s->size(); ++i)
        if (!std::isfinite(s->at(i)))
          fail(std::string("tensor '") + name + "' at element " + std::to_string(i) + " is " + number_text(s->at(i)) +
               "; expected finite inputs");

  const auto is = [](double neutral) { return [neutral](double x) { return x == neutral; }; };
  const auto untaken = [&](const char* what, double neutral) {
    return id + " takes no " + what + ", expected " + number_text(neutral) +
           " everywhere: leave it out, or pass --rule";
  };
  if (info.strength == Strength::no) all("beta", is(1), untaken("beta", 1));
  if (info.strength == Strength::per_head) same_in_a_row("beta", "beta");
  if (info.forget == Forget::no) all("g", is(0), untaken("decay", 0)), all("alpha", is(1), untaken("decay", 1));
  if (info.forget == Forget::per_head) same_in_a_row("g", "decay"), same_in_a_row("alpha", "decay");
  if (!info.lambda) all("lambda", is(0), untaken("lambda", 0));
  // Inputs of other rules; a name that no rule knows is somebody's intermediate, and only noted.
  for (const Rule* r : rules())
    for (const Input& i : r->info.inputs) {
      const std::string name(i.name);
      if (takes(info, name) || !dump_.find(name)) continue;
      const double neutral = i.neutral == Neutral::one ? 1 : i.neutral == Neutral::zero ? 0 : NAN;
      const DumpTensor& t = *dump_.find(name);
      if (t.shape.size() < 3 || t.shape[0] != shape_.B || t.shape[1] != shape_.T || std::isnan(neutral))
        fail("tensor '" + name + "' is an input of " + std::string(r->info.id) + ", which " + id +
             " does not take; leave it out, or pass --rule");
      all(name, is(neutral), untaken(i.name.data(), neutral));
    }
}

template <Real T> Mat<T> Subject::state(const DumpTensor& t, Index n, Index j) const {
  const Index d_k = shape_.d_k, d_v = shape_.d_v;
  std::vector<double> x(static_cast<std::size_t>(d_k * d_v));
  t.read((n * shape_.HV + j) * d_k * d_v, x);
  Mat<T> S(d_v, d_k);
  for (Index r = 0; r < d_v; ++r)
    for (Index c = 0; c < d_k; ++c) S(r, c) = T(x[kv_ ? c * d_v + r : r * d_k + c]);
  return S;
}

template <Real T> Problem<T> Subject::lane(Index n, Index j, const InputFault& fault) const {
  const Shape& z = shape_;
  const RuleInfo& info = rule_->info;
  const Index length = z.length(n), b = z.batch(n), begin = z.begin(n);
  Problem<T> p{
      .shape = {.B = 1, .T = length, .H = 1, .HV = 1, .d_k = z.d_k, .d_v = z.d_v, .n_h = z.n_h, .offsets = {}}};
  std::vector<double> x;
  // Rows of one head of [B, T, heads, ...]; where the file has fewer numbers a row than the rule wants, they are
  // spread.
  const auto rows = [&](const std::string& name, Index heads, Index head, Index cols, double neutral, auto f,
                        Index n_rows = 1) {
    Tensor<T> out(1, length, 1, cols, n_rows);
    const DumpTensor* t = dump_.find(name);
    if (!t) {
      std::ranges::fill(out.data, T(neutral));
      return out;
    }
    const Index width = elements(std::span(t->shape).subspan(3));
    x.resize(static_cast<std::size_t>(width));
    for (Index s = 0; s < length; ++s) {
      t->read(((b * z.T + begin + s) * heads + head) * width, x);
      for (Index i = 0; i < cols * n_rows; ++i) out.at(0, s, 0)[i] = f(x[width == cols * n_rows ? i : 0]);
    }
    return out;
  };
  const auto plain = [](double y) { return T(y); };
  const Index key_head = fault.heads_tiled ? j % z.H : z.key_head(j);
  p.q = rows("q", z.H, key_head, z.d_k, 0, plain);
  p.k = rows("k", z.H, key_head, z.d_k, 0, plain);
  p.v = rows("v", z.HV, j, z.d_v, 0, plain);
  if (info.strength != Strength::no)
    p.beta = rows("beta", z.HV, j, info.strength == Strength::per_value ? z.d_v : 1, 1, plain);
  if (info.forget != Forget::no) {
    const Index cols = info.forget == Forget::per_channel ? z.d_k : 1;
    p.alpha = dump_.find("g") ? rows("g", z.HV, j, cols, 0, decay_of<T>) : rows("alpha", z.HV, j, cols, 1, plain);
  }
  if (info.lambda) p.lambda = rows("lambda", z.HV, j, 1, 0, plain);
  for (const Input& i : info.inputs)
    p.inputs.push_back(dump_.find(std::string(i.name))
                           ? rows(std::string(i.name), z.HV, j, z.width(i.extent), 0, plain, i.more ? z.n_h - 1 : 1)
                           : Tensor<T>());
  if (const DumpTensor* s = dump_.find("initial_state")) p.S0.push_back(state<T>(*s, n, j));
  if (l2norm_) p.l2norm = T(*l2norm_);
  return taken<T>(std::move(p), fault);
}

std::optional<Format> Subject::hidden_format() const {
  for (const Format& f : {kBf16, kFp16}) {
    if (operands_.p <= kFp16.p) break;
    const bool all = std::ranges::all_of(std::initializer_list<const char*>{"q", "k", "v"}, [&](const char* name) {
      const DumpTensor& t = *dump_.find(name);
      for (Index i = 0; i < t.size(); ++i)
        if (const double x = t.at(i); std::isfinite(x) && f.round(x) != x) return false;
      return true;
    });
    if (all) return f;
  }
  return std::nullopt;
}

Mat<double> Subject::rows_of(const DumpTensor& t, Index n, Index head) const {
  const Shape& z = shape_;
  const Index heads = t.shape[2], width = elements(std::span(t.shape).subspan(3));
  Mat<double> out(z.length(n), width);
  std::vector<double> x(static_cast<std::size_t>(width));
  for (Index s = 0; s < out.rows(); ++s) {
    t.read(((z.batch(n) * z.T + z.begin(n) + s) * heads + head) * width, x);
    out.row(s) = Eigen::Map<const Vec<double>>(x.data(), width).transpose();
  }
  return out;
}

Output<double> Subject::candidate(Index n, Index j) const {
  Output<double> out{.O = rows_of(*dump_.find("o"), n, j), .S = {}};
  if (const DumpTensor* s = dump_.find("final_state")) out.S = state<double>(*s, n, j);
  return out;
}

Output<double> Subject::output_gradient(Index n, Index j) const {
  const DumpTensor* s = dump_.find("d_final_state");
  return {.O = rows_of(required("do"), n, j),
          .S = s ? state<double>(*s, n, j) : Mat<double>(Mat<double>::Zero(shape_.d_v, shape_.d_k))};
}

Mat<double> Subject::candidate_gradient(const std::string& tensor, Index n, Index head) const {
  const DumpTensor& t = required(tensor);
  return tensor == "d_initial_state" ? state<double>(t, n, head) : rows_of(t, n, head);
}

std::map<std::string, Mat<double>> Subject::gradient_tensors(const Problem<double>& g, Index n, Index j) const {
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto rows = [&](const Tensor<double>& t) {
    return Mat<double>(Eigen::Map<const RowMajor>(t.data.data(), t.tokens, t.rows * t.cols));
  };
  // One number a token where the file has one.
  const auto fitted = [&](const char* tensor, const Mat<double>& A) {
    const DumpTensor& t = *dump_.find(tensor);
    return t.shape.size() == 4 ? A : Mat<double>(A.rowwise().sum());
  };
  // x / |x|_eps: dx = (dy - y (y . dy)) / |x|_eps
  const auto through_norm = [&](Mat<double> d, const Tensor<double>& raw) {
    if (!l2norm_) return d;
    const Mat<double> x = rows(raw);
    for (Index t = 0; t < d.rows(); ++t) {
      const double norm = std::sqrt(x.row(t).squaredNorm() + *l2norm_);
      if (norm == 0) continue;
      const Mat<double> y = x.row(t) / norm;  // [1 x d_k]
      d.row(t) = ((d.row(t) - y * y.cwiseProduct(d.row(t)).sum()) / norm).eval();
    }
    return d;
  };
  const Problem<double> p = lane<double>(n, j, {.norm = Norm::missing});
  std::map<std::string, Mat<double>> out;
  for (const std::string& name : gradients_) {
    Mat<double>& to = out[name];
    if (name == "dq") to = through_norm(rows(g.q), p.q);
    if (name == "dk") to = through_norm(rows(g.k), p.k);
    if (name == "dv") to = rows(g.v);
    if (name == "dbeta") to = fitted("dbeta", rows(g.beta));
    if (name == "dg") to = fitted("dg", rows(p.alpha).cwiseProduct(rows(g.alpha)));  // d alpha = alpha d ln alpha
    if (name == "dlambda") to = rows(g.lambda);
    if (name == "d_initial_state") to = g.S0.at(0);
  }
  return out;
}

template Problem<double> Subject::lane<double>(Index, Index, const InputFault&) const;
template Problem<DoubleDouble> Subject::lane<DoubleDouble>(Index, Index, const InputFault&) const;
#if DELTAREF_HAVE_ARB
template Problem<Ball> Subject::lane<Ball>(Index, Index, const InputFault&) const;
#endif

}  // namespace delta
