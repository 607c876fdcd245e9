// The session spec: what a training job tells the daemon about its parameters and their rules.
//
// The JSON format is described in proto/README.md. Parsing validates everything; what it returns is
// complete (presets and defaults filled in) and in canonical order.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "proto/dtype.h"

namespace dmuon {

// A spec that is refused. what() is one line that names the key and the offending value.
class SpecError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

enum class Rule { kMuon, kAdamW };
enum class MomentumForm { kSgd, kEma };
enum class UpdateScale { kOriginal, kMatchRmsAdamW, kSpectral, kSpectralMax, kNone };
enum class Normalize { kStrict, kEpsAdd, kEpsMax };
enum class NsForm { kAuto, kDirect, kGram };
enum class Precision { kAuto, kBf16, kFp16, kFp32 };
enum class Reduce { kMean, kSum };

// Spec spellings of the enumerators ("muon", "match_rms_adamw", ...).
std::string_view NameOf(Rule rule);
std::string_view NameOf(NsForm form);
std::string_view NameOf(Precision precision);

struct MuonSettings {
  double lr = 0.02;
  double weight_decay = 0.0;
  double momentum = 0.95;
  DType momentum_dtype = DType::kFloat32;  // fp32 or bf16
  bool nesterov = true;
  MomentumForm momentum_form = MomentumForm::kSgd;
  UpdateScale scale = UpdateScale::kMatchRmsAdamW;
  Normalize normalize = Normalize::kStrict;
  double eps = 1e-7;
  std::vector<std::array<double, 3>> coefficients;  // (a, b, c), one per iteration
  NsForm form = NsForm::kAuto;
  std::optional<std::vector<int>> restart;  // 0-based iterations; unset: by shape and precision
  Precision precision = Precision::kAuto;
};

struct AdamWSettings {
  double lr = 1e-3;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

// Settings of one group under both rules: a parameter's own rule may differ from its group's. A
// value that the group states applies to both; the rest comes from the preset and from AdamW's
// defaults.
struct GroupSpec {
  std::string name;
  std::optional<Rule> rule;
  MuonSettings muon;
  AdamWSettings adamw;
};

// How a parameter maps to matrices. `stack` takes the first dimension off; what remains is made two
// dimensional by `flatten` (rows = first remaining dimension) or already is; at most one of the
// splits and the interleave then cuts it.
struct View {
  bool flatten = false;
  bool stack = false;
  std::vector<int64_t> split_rows;
  std::vector<int64_t> split_cols;
  int64_t interleave_rows = 0;  // k > 1: matrix j is rows j, j+k, j+2k, ...
};

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;  // published and pushed dtype
  Rule rule = Rule::kMuon;
  int group = 0;  // index into SessionSpec::groups
  View view;
  std::optional<int64_t> order;

  int64_t elements() const;
};

struct SessionSpec {
  std::string preset = "dmuon";
  std::string model;   // informative
  std::string source;  // informative
  Reduce reduce = Reduce::kMean;
  std::optional<double> max_grad_norm;
  std::vector<GroupSpec> groups;          // sorted by name
  std::vector<ParameterSpec> parameters;  // canonical order: `order` where given, then natural sort
};

// Parses and validates. Throws SpecError.
SessionSpec ParseSessionSpec(std::string_view json);

// A JSON text with everything filled in, equal for specs that mean the same whatever their
// registration order. Parses back to the same spec.
std::string CanonicalJson(const SessionSpec& spec);

// "layer.2" sorts before "layer.10": runs of digits compare as numbers; ties by plain comparison.
bool NaturalLess(std::string_view a, std::string_view b);

// One NS matrix, or a range of an elementwise parameter, inside a parameter: element (i, j) is
// element base + i*row_stride + j of the parameter counted row-major.
struct StridedMatrix {
  int64_t base = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;

  int64_t elements() const { return rows * cols; }
  bool operator==(const StridedMatrix&) const = default;
};

// The matrices that `parameter` maps to, in order: experts first, then split or interleave parts.
// Only for Muon parameters. The spec has been validated, so this cannot fail.
std::vector<StridedMatrix> MatricesOf(const ParameterSpec& parameter);

}  // namespace dmuon
